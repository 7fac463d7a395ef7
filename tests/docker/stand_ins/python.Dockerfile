# Stands for python:3.12-slim-bookworm where no registry of images can be reached: the same Debian, with
# Debian's own Python under the official image's names.
FROM doc-rag-stand-in-debian:bookworm
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
# Like the official image, without the standard library's bytecode.
RUN ln -s /usr/bin/python3 /usr/local/bin/python \
    && find /usr/lib/python3* -depth -type d -name __pycache__ -exec rm -rf {} +
CMD ["python3"]
