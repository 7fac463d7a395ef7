from doc_rag.plan import plan_removals

TEN = [f"d{i}.md" for i in range(10)]


def removals(
    on_disk: list[str], unreadable: list[str] | None = None, confirmed: bool = False
) -> tuple[int, int]:
    found = plan_removals(TEN, on_disk, unreadable or [], guard_share=0.5, confirmed=confirmed)
    return len(found.drop), len(found.held)


def test_a_few_removals_are_believed() -> None:
    assert removals(TEN[4:]) == (4, 0)


def test_half_the_documents_are_held_until_confirmed() -> None:
    assert removals(TEN[5:]) == (0, 5)
    assert removals(TEN[5:], confirmed=True) == (5, 0)


def test_fewer_than_five_are_never_a_large_removal() -> None:
    assert plan_removals(["a", "b", "c"], ["c"], [], guard_share=0.5, confirmed=False).drop == ("a", "b")


def test_an_empty_disk_is_held_however_small_the_collection() -> None:
    assert plan_removals(["a", "b"], [], [], guard_share=0.5, confirmed=False).held == ("a", "b")


def test_what_could_not_be_looked_at_is_not_removed() -> None:
    found = plan_removals(
        ["in/a.md", "in/deep/b.md", "inner.md", "gone.md"],
        ["x.md"],
        ["in"],
        guard_share=0.5,
        confirmed=True,
    )
    assert found.drop == ("gone.md", "inner.md")


def test_an_unreadable_root_removes_nothing() -> None:
    assert plan_removals(TEN, [], ["."], guard_share=0.5, confirmed=True).drop == ()
    assert plan_removals(TEN, [], [""], guard_share=0.5, confirmed=True).drop == ()


def test_a_share_of_zero_holds_any_five() -> None:
    names = [f"d{i}" for i in range(1000)]
    assert len(plan_removals(names, names[5:], [], guard_share=0.0, confirmed=False).held) == 5


def test_what_was_never_read_neither_counts_nor_waits() -> None:
    indexed = [*TEN, "scan1.pdf", "scan2.pdf"]
    found = plan_removals(
        indexed, TEN[5:], [], guard_share=0.5, confirmed=False, unread=["scan1.pdf", "scan2.pdf"]
    )
    assert (found.drop, found.held) == (("scan1.pdf", "scan2.pdf"), tuple(TEN[:5]))
    gone = plan_removals(["scan1.pdf"], [], [], guard_share=0.5, confirmed=False, unread=["scan1.pdf"])
    assert (gone.drop, gone.held) == (("scan1.pdf",), ())
