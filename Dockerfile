# The image of every part of Corvus; docker-compose.yml says which part a container is.
FROM python:3.13-slim

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 DJANGO_SETTINGS_MODULE=corvus_site.settings
WORKDIR /opt/corvus

COPY requirements.lock ./
# psycopg is the one package beyond the lock file: only this shape of Corvus uses PostgreSQL.
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock \
    && pip install --no-cache-dir --only-binary :all: "psycopg[binary]>=3.2,<4"

COPY . .
# The visitors' words, compiled while the code can still be written.
RUN python -m queueing.catalogues
RUN useradd --system --home-dir /var/lib/corvus --create-home corvus \
    && chmod 700 /var/lib/corvus
USER corvus
ENV CORVUS_DATA_DIR=/var/lib/corvus
CMD ["python", "manage.py", "up"]
