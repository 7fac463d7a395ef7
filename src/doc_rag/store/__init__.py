"""Where documents, chunks and vectors live: the only package that speaks SQL or knows Postgres."""
