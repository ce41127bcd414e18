//! Lines of the log engine, and of the tree above it.

use super::{Mutation, Suite};

pub(super) const SUITE: Suite = Suite {
    package: "apiserver-storage",
    folder: "apiserver/storage/src/backends/log",
    mutations: TABLE,
};

const STORY: &[&str] = &["--test", "history", "history_acknowledged"];
const FLIPS: &[&str] = &["--test", "history", "flips"];
const FULL: &[&str] = &["--test", "full_disk"];
const PANICS: &[&str] = &["--test", "panics"];
const BACKUP: &[&str] = &["--test", "backup"];
const SNAPSHOT: &[&str] = &["--test", "snapshot"];
const ENCRYPTION: &[&str] = &["--test", "encryption"];
const PAGING: &[&str] = &["--test", "paging"];
const RECOVERY: &[&str] = &["--test", "recovery"];
const PAST: &[&str] = &["--test", "past"];
const COUNTS: &[&str] = &["--lib", "root::"];

const TABLE: &[Mutation] = &[
    Mutation {
        name: "a batch is not synced",
        file: "files.rs",
        from: "written.segment.file.sync_data().map_err(failed)?;",
        to: "drop(failed);",
        proof: STORY,
    },
    Mutation {
        name: "a change is published before it is synced",
        file: "engine.rs",
        from: "Ok(written) => Ok(Flush::Sync(batch, written)),",
        to: "Ok(written) => Ok(Flush::Publish(batch, Some(written.batch))),",
        proof: STORY,
    },
    Mutation {
        name: "the name of a new segment is not synced",
        file: "segment.rs",
        from: "disk.sync_dir(dir).map_err(failed())?;\n        let segment",
        to: "let segment",
        proof: STORY,
    },
    Mutation {
        name: "the repeated batch is not synced before its header",
        file: "segment.rs",
        from: "file.write_at(SECTOR as u64, batch).map_err(failed())?;\n            file.sync_data().map_err(failed())?;",
        to: "file.write_at(SECTOR as u64, batch).map_err(failed())?;",
        proof: RECOVERY,
    },
    Mutation {
        name: "recovery does not repeat the last batch",
        file: "recovery.rs",
        from: "Some(last) => (last.header.batch, last.header.first_revision, &last.bytes[..]),",
        to: "Some(_) => (self.next_batch, self.live.revision.0 + 1, &[][..]),",
        proof: STORY,
    },
    Mutation {
        name: "a checkpoint is renamed before it is synced",
        file: "checkpoint.rs",
        from: "self.file.sync_data().map_err(failed())?;",
        to: "",
        proof: STORY,
    },
    Mutation {
        name: "pruning takes the base checkpoint",
        file: "files.rs",
        from: "if at == base || at == newest {",
        to: "if at == newest {",
        proof: STORY,
    },
    Mutation {
        name: "the floor of a checkpoint is lost",
        file: "checkpointing.rs",
        from: "compacted: compacted.0,",
        to: "compacted: compacted.0 / 2,",
        proof: STORY,
    },
    Mutation {
        name: "a conflict is answered before what it rests on is durable",
        file: "writer.rs",
        from: "if queued == Revision::ZERO {",
        to: "if queued >= Revision::ZERO {",
        proof: STORY,
    },
    Mutation {
        name: "a watch read from the log carries a wrong previous version",
        file: "previous.rs",
        from: "Some(previous) => Previous::Known(previous),",
        to: "Some(_) if previous != Revision::ZERO && entry.is_none() => Previous::Known(None),\n            Some(previous) => Previous::Known(previous),",
        proof: STORY,
    },
    Mutation {
        name: "a change is told for what it is and not for what it was",
        file: "previous.rs",
        from: "            || self.slot.wants_version(&change.key, Some(&entry));",
        to: ";",
        proof: PAST,
    },
    Mutation {
        name: "versions beyond the bound are left out",
        file: "previous.rs",
        from: "self.too_much.insert(entry.revision);",
        to: "",
        proof: PAST,
    },
    Mutation {
        name: "a look-up passes the batch it is for",
        file: "segment.rs",
        from: "end <= revision.0).then_some(behind)",
        to: "end <= revision.0 + 1).then_some(behind)",
        proof: PAST,
    },
    Mutation {
        name: "a look-up begins at the segment's start",
        file: "segment.rs",
        from: "offset = offset.max(self.start_for(*first));",
        to: "",
        proof: PAST,
    },
    Mutation {
        name: "a count leaves out the last block",
        file: "../../root.rs",
        from: "count += last.take_while(|(key, _)| prefix.contains(key)).count();",
        to: "drop(last);",
        proof: COUNTS,
    },
    Mutation {
        name: "record checksums are not compared",
        file: "format.rs",
        from: "if crc32c::crc32c(payload) != checksum {",
        to: "if crc32c::crc32c(payload) != checksum && payload.is_empty() {",
        proof: FLIPS,
    },
    Mutation {
        name: "file header checksums are not compared",
        file: "format.rs",
        from: "if sector.len() != SECTOR || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {",
        to: "if sector.len() != SECTOR || *checksum == [1; 4] {",
        proof: FLIPS,
    },
    Mutation {
        name: "the newest segment's loss is not noticed",
        file: "directory.rs",
        from: "if segments.any(|segment| segment.header.index == active.index) {",
        to: "if segments.any(|segment| segment.header.index <= active.index) {",
        proof: FLIPS,
    },
    Mutation {
        name: "what was refused keeps its revisions",
        file: "writer.rs",
        from: "self.last = last;\n        self.overlay.clear();",
        to: "self.overlay.clear();",
        proof: FULL,
    },
    Mutation {
        name: "the log goes on behind a refused batch",
        file: "files.rs",
        from: "self.roll |= written.is_err();",
        to: "",
        proof: FULL,
    },
    Mutation {
        name: "the reserve is not used by a start",
        file: "files.rs",
        from: "let limit = room.take(leave, &path)?;",
        to: "let limit = room.take(leave + 4, &path)?;",
        proof: FULL,
    },
    Mutation {
        name: "a piece is used before its name is durable",
        file: "disk_reserve/mod.rs",
        from: "self.disk.sync_dir(&self.dir).map_err(failed())?;\n        Ok(length)",
        to: "Ok(length)",
        proof: FULL,
    },
    Mutation {
        name: "a loan is written before its name is durable",
        file: "disk_reserve/loan.rs",
        from: "self.disk.sync_dir(&self.dir).map_err(failed())?;\n        if",
        to: "if",
        proof: FULL,
    },
    Mutation {
        name: "a file is blanked before its new name is durable",
        file: "disk_reserve/pieces.rs",
        from: ".sync_dir(&self.dir)\n            .and_then(|()| self.finish_piece(number));",
        to: ".space(&self.dir)\n            .and_then(|_| self.finish_piece(number));",
        proof: FULL,
    },
    Mutation {
        name: "a piece gets its name before its zeros are durable",
        file: "disk_reserve/pieces.rs",
        from: "file.sync_data()?;\n",
        to: "",
        proof: FULL,
    },
    Mutation {
        name: "a piece counts before its name is durable",
        file: "disk_reserve/pieces.rs",
        from: "&Self::path(&self.dir, number))?;\n        self.disk.sync_dir(&self.dir)",
        to: "&Self::path(&self.dir, number))",
        proof: FULL,
    },
    Mutation {
        name: "a start goes on before the log's end is durable",
        file: "resume.rs",
        from: "file.sync_data().map_err(failed())?;\n",
        to: "",
        proof: FULL,
    },
    Mutation {
        name: "times to live go by the wall clock",
        file: "upkeep.rs",
        from: "now + left.min(self.longest)",
        to: "now + left",
        proof: STORY,
    },
    Mutation {
        name: "a panic of the flush is kept to itself",
        file: "engine.rs",
        from: "owner.panicked(\"the flush\", message)",
        to: "drop((owner, message))",
        proof: PANICS,
    },
    Mutation {
        name: "a restore is done before its name is durable",
        file: "checkpoint.rs",
        from: "self.disk.sync_dir(&self.dir).map_err(failed())?;\n        Ok(Checkpoint {",
        to: "Ok(Checkpoint {",
        proof: BACKUP,
    },
    Mutation {
        name: "the directory of a restore is not durable",
        file: "restore.rs",
        from: "sync_above(&**disk, dir)?;",
        to: "",
        proof: BACKUP,
    },
    Mutation {
        name: "a server starts beside an unfinished restore",
        file: "directory.rs",
        from: "names.iter().any(|name| name == RESTORE_DRAFT)",
        to: "names.is_empty()",
        proof: BACKUP,
    },
    Mutation {
        name: "the end of a backup is not looked at",
        file: "backup.rs",
        from: "bytes.end()?;",
        to: "",
        proof: BACKUP,
    },
    Mutation {
        name: "a full disk leaves half a backup",
        file: "backup.rs",
        from: "self.abandon();\n            return Err(self.failed(error));",
        to: "return Err(self.failed(error));",
        proof: BACKUP,
    },
    Mutation {
        name: "damage that the scrub finds is left as it is",
        file: "engine.rs",
        from: "|| self.scrubbed.heals.load(Ordering::Acquire);",
        to: ";",
        proof: BACKUP,
    },
    Mutation {
        name: "a page of a snapshot may be its own child",
        file: "snapshot/bolt_reader.rs",
        from: "!self.visited.insert(id) || depth > MAX_DEPTH",
        to: "depth > MAX_DEPTH * MAX_DEPTH * MAX_DEPTH",
        proof: SNAPSHOT,
    },
    Mutation {
        name: "a checkpoint holds plain records",
        file: "checkpoint.rs",
        from: "let entry = seal::sealed(encryption, entry);",
        to: "let entry = Arc::clone(entry);",
        proof: ENCRYPTION,
    },
    Mutation {
        name: "keys of a checkpoint that is being written are not counted",
        file: "keys.rs",
        from: "self.drafts.lock().clone()",
        to: "Vec::<Arc<Seals>>::new()",
        proof: ENCRYPTION,
    },
    Mutation {
        name: "keys of the newest checkpoint are not counted",
        file: "keys.rs",
        from: "files.extend(newest.map(|checkpoint| Arc::clone(&checkpoint.seals)));",
        to: "drop(newest);",
        proof: ENCRYPTION,
    },
    Mutation {
        name: "a batch holds plain records",
        file: "writer.rs",
        from: "entry: seal::sealed(encryption, entry),",
        to: "entry: seal::sealed(encryption.filter(|_| false), entry),",
        proof: ENCRYPTION,
    },
    Mutation {
        name: "a sealed record is shown to a reader",
        file: "engine.rs",
        from: "if !entry.record.is_sealed() {",
        to: "if !entry.record.is_sealed() || true {",
        proof: ENCRYPTION,
    },
    Mutation {
        name: "a list of the past is put together for every page",
        file: "mod.rs",
        from: "self.engine.pins.lock().keep_list(at, prefix, &list);",
        to: "",
        proof: PAGING,
    },
];
