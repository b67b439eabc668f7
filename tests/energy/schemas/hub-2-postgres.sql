-- The database that version 2 of tide-hub's store left behind in PostgreSQL.
CREATE TABLE tide_hub (version BIGINT NOT NULL);
CREATE TABLE point (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, unit TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, boot BIGINT NOT NULL, seq BIGINT NOT NULL, uj BIGINT NOT NULL, low BIGINT NOT NULL, high BIGINT NOT NULL, UNIQUE (unit, name));
CREATE TABLE sample (step BIGINT NOT NULL, point BIGINT NOT NULL, to_ms BIGINT NOT NULL, from_ms BIGINT NOT NULL, uj BIGINT NOT NULL, low BIGINT NOT NULL, high BIGINT NOT NULL, basis BIGINT NOT NULL, gap BIGINT NOT NULL, PRIMARY KEY (step, point, to_ms));
CREATE INDEX sample_by_time ON sample (step, to_ms);
ALTER TABLE point ADD COLUMN first_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE point ADD COLUMN last_ms BIGINT NOT NULL DEFAULT 0;
UPDATE point SET first_ms = coalesce((SELECT min(from_ms) FROM sample WHERE point = point.id), 0), last_ms = coalesce((SELECT max(to_ms) FROM sample WHERE point = point.id), 0);
CREATE TABLE day (point BIGINT NOT NULL, begin_ms BIGINT NOT NULL, uj BIGINT NOT NULL, low BIGINT NOT NULL, high BIGINT NOT NULL, basis BIGINT NOT NULL, gap BIGINT NOT NULL, PRIMARY KEY (point, begin_ms));
CREATE INDEX day_by_time ON day (begin_ms);
CREATE TABLE note (name TEXT COLLATE "C" PRIMARY KEY, value TEXT COLLATE "C" NOT NULL);
INSERT INTO point (id, unit, name, boot, seq, uj, low, high, first_ms, last_ms) OVERRIDING SYSTEM VALUE VALUES (1, 'lab3', 'meter:main', 77, 3, 3000, 2700, 3300, 1795391999000, 1795392003000);
INSERT INTO sample VALUES (1, 1, 1795392003000, 1795392002000, 1000, 900, 1100, 4, 0);
INSERT INTO sample VALUES (60, 1, 1795392000000, 1795391999000, 2000, 1800, 2200, 2, 500);
INSERT INTO day VALUES (1, 1795392000000, 1000, 900, 1100, 4, 0);
INSERT INTO day VALUES (1, 1795305600000, 2000, 1800, 2200, 2, 500);
INSERT INTO note VALUES ('zone', 'UTC');
INSERT INTO note VALUES ('until', '0');
INSERT INTO tide_hub VALUES (2);
