-- The database that version 1 of tided's energy.db left behind.
CREATE TABLE part (time INTEGER, part INTEGER, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (time, part)) WITHOUT ROWID;
CREATE TABLE job (time INTEGER, submitted INTEGER, number INTEGER, uid INTEGER NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (time, submitted, number)) WITHOUT ROWID;
-- QUARTER: the beginning of a quarter of an hour, which the test puts in.
INSERT INTO part VALUES (QUARTER, 0, 3000, 2700, 3300, 4, 0), (QUARTER, 1, 2000, 1800, 2200, 4, 0), (QUARTER, 3, 1000, 900, 1100, 4, 0);
INSERT INTO job VALUES (QUARTER, 1, 7, 1000, 'train', 'ana', 2000, 1800, 2200, 4, 0);
PRAGMA user_version = 1;
