from doc_rag.cache import QueryCache
from doc_rag.records import QueryAnswer


def answer(revision: int) -> QueryAnswer:
    return QueryAnswer("q", ("c",), {"c": revision}, "vector", (), 0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_is_served_only_under_the_revision_it_was_read_at() -> None:
    cache = QueryCache(4, 60)
    cache.put("k", answer(7))
    assert cache.get("k", {"c": 7}) == answer(7)
    assert cache.get("k", {"c": 8}) is None
    assert cache.get("k", {"c": 7}) is None, "a stale entry is dropped for good"
    assert (cache.stats().hits, cache.stats().misses) == (1, 2)


def test_a_collection_made_since_is_another_revision() -> None:
    cache = QueryCache(4, 60)
    cache.put("all", answer(7))
    assert cache.get("all", {"c": 7, "d": 1}) is None


def test_entries_age_and_the_oldest_gives_way() -> None:
    clock = Clock()
    cache = QueryCache(2, 60, clock)
    for key in "abc":
        cache.put(key, answer(1))
    assert cache.get("a", {"c": 1}) is None
    assert cache.get("c", {"c": 1}) is not None
    clock.now = 61
    assert cache.get("c", {"c": 1}) is None
    assert cache.stats().size == 0


def test_clear_says_how_many_there_were() -> None:
    cache = QueryCache(4, 60)
    cache.put("a", answer(1))
    cache.put("b", answer(1))
    assert cache.clear() == 2
    assert cache.clear() == 0


def test_a_size_or_age_of_zero_turns_it_off() -> None:
    for cache in (QueryCache(0, 60), QueryCache(4, 0)):
        cache.put("a", answer(1))
        assert cache.get("a", {"c": 1}) is None


def test_the_rate_is_that_of_the_lookups() -> None:
    cache = QueryCache(4, 60)
    assert cache.stats().hit_rate == 0.0
    cache.put("a", answer(1))
    cache.get("a", {"c": 1})
    cache.get("b", {"c": 1})
    assert cache.stats().hit_rate == 0.5
