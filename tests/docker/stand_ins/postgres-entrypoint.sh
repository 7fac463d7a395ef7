#!/bin/sh
# The contract of the official postgres:18 image, as far as doc-rag-mcp's compose file relies on it:
# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB on first start, PGDATA below /var/lib/postgresql, the old
# mount point refused, a temporary server on the socket alone while it initialises, the scripts in
# /docker-entrypoint-initdb.d, passwords asked of everyone outside the container.
set -eu

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown -R postgres:postgres "$PGDATA"
    chmod 0700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if grep -q ' /var/lib/postgresql/data ' /proc/self/mountinfo; then
    echo "Error: in 18+, these Docker images store data in a major-version-specific directory; there is a" \
        "mount at /var/lib/postgresql/data. Mount /var/lib/postgresql instead." >&2
    exit 1
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    : "${POSTGRES_USER:=postgres}"
    : "${POSTGRES_DB:=$POSTGRES_USER}"
    if [ -z "${POSTGRES_PASSWORD:-}" ]; then
        echo "Error: Database is uninitialized and superuser password is not specified." >&2
        exit 1
    fi
    printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
    initdb -D "$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password --encoding=UTF8 \
        --locale-provider=builtin --builtin-locale=C.UTF-8 --locale=C.UTF-8
    rm /tmp/password
    {
        echo "listen_addresses = '*'"
        echo "unix_socket_directories = '/var/run/postgresql, /tmp'"
    } >>"$PGDATA/postgresql.conf"
    printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
    if [ "$POSTGRES_DB" != postgres ]; then
        printf 'create database :"name";\n' | psql -v ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" \
            --dbname postgres -v name="$POSTGRES_DB"
    fi
    for script in /docker-entrypoint-initdb.d/*.sh; do
        [ -e "$script" ] && sh "$script"
    done
    pg_ctl -D "$PGDATA" -m fast -w stop
    echo "PostgreSQL init process complete; ready for start up."
fi

exec "$@"
