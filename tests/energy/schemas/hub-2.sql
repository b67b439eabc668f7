-- The database that version 2 of tide-hub's store left behind.
CREATE TABLE point (id INTEGER PRIMARY KEY, unit TEXT NOT NULL, name TEXT NOT NULL, boot INTEGER NOT NULL, seq INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, UNIQUE (unit, name));
CREATE TABLE sample (step INTEGER NOT NULL, point INTEGER NOT NULL, to_ms INTEGER NOT NULL, from_ms INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (step, point, to_ms)) WITHOUT ROWID;
CREATE INDEX sample_by_time ON sample (step, to_ms);
ALTER TABLE point ADD COLUMN first_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE point ADD COLUMN last_ms INTEGER NOT NULL DEFAULT 0;
UPDATE point SET first_ms = coalesce((SELECT min(from_ms) FROM sample WHERE point = point.id), 0), last_ms = coalesce((SELECT max(to_ms) FROM sample WHERE point = point.id), 0);
CREATE TABLE day (point INTEGER NOT NULL, begin_ms INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (point, begin_ms)) WITHOUT ROWID;
CREATE INDEX day_by_time ON day (begin_ms);
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO point (id, unit, name, boot, seq, uj, low, high, first_ms, last_ms) VALUES (1, 'lab3', 'meter:main', 77, 3, 3000, 2700, 3300, 1795391999000, 1795392003000);
INSERT INTO sample VALUES (1, 1, 1795392003000, 1795392002000, 1000, 900, 1100, 4, 0);
INSERT INTO sample VALUES (60, 1, 1795392000000, 1795391999000, 2000, 1800, 2200, 2, 500);
INSERT INTO day VALUES (1, 1795392000000, 1000, 900, 1100, 4, 0);
INSERT INTO day VALUES (1, 1795305600000, 2000, 1800, 2200, 2, 500);
INSERT INTO note VALUES ('zone', 'UTC');
INSERT INTO note VALUES ('until', '0');
PRAGMA user_version = 2;
