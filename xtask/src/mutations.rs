//! `cargo xtask mutations`: breaks the log engine in one place after the other, and each time a proof must fail.
//!
//! A mutation that every test survives means that the line it breaks is not guarded. Each costs one build of the storage
//! crate and one run of its proof: about a minute on two cores, some twenty minutes for all. Not a part of `ci`.

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// Which mutations.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only those whose name contains this text.
    #[arg(default_value = "")]
    name: String,
}

/// One line of the engine, broken.
struct Mutation {
    name: &'static str,
    /// Below `apiserver/storage/src/backends/log`.
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// The proof that must notice.
    proof: &'static [&'static str],
}

const STORY: &[&str] = &["--test", "history", "nothing_acknowledged"];
const FLIPS: &[&str] = &["--test", "history", "flips"];
const FULL: &[&str] = &["--test", "full_disk"];
const PANICS: &[&str] = &["--test", "panics"];
const BACKUP: &[&str] = &["--test", "backup"];
const SNAPSHOT: &[&str] = &["--test", "snapshot"];
const ENCRYPTION: &[&str] = &["--test", "encryption"];
const PAGING: &[&str] = &["--test", "paging"];

const MUTATIONS: &[Mutation] = &[
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
        proof: STORY,
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
        file: "upkeep.rs",
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
        file: "past.rs",
        from: "Some(previous) => previous.clone(),",
        to: "Some(_) if previous != Revision::ZERO && entry.is_none() => None,\n            Some(previous) => previous.clone(),",
        proof: STORY,
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
        proof: STORY,
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
        file: "room.rs",
        from: "self.disk.sync_dir(&self.dir).map_err(failed())?;\n        Ok(length)",
        to: "Ok(length)",
        proof: STORY,
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
        from: "self.disk.sync_dir(&self.dir).map_err(failed())?;\n        Checkpoint::open",
        to: "Checkpoint::open",
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
        from: "entry: seal::sealed(self.encryption.as_deref(), entry),",
        to: "entry: Arc::clone(entry),",
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

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let folder = config.root.join("apiserver/storage/src/backends/log");
    let wanted = MUTATIONS.iter().filter(|own| own.name.contains(&arguments.name));
    let mut survived = Vec::new();
    for mutation in wanted {
        println!("==> {}", mutation.name);
        let broken = Broken::new(folder.join(mutation.file), mutation)?;
        let mut build = test(config, mutation);
        process::run(build.arg("--no-run")).context("a mutation must compile")?;
        if process::run(&mut test(config, mutation)).is_ok() {
            survived.push(mutation.name);
        }
        drop(broken);
    }
    if survived.is_empty() {
        println!("every mutation was noticed");
        return Ok(());
    }
    bail!("not noticed: {}", survived.join("; "))
}

fn test(config: &Config, mutation: &Mutation) -> std::process::Command {
    let mut command = process::cargo(&config.root);
    command.args(["test", "--quiet", "-p", "apiserver-storage"]);
    command.args(mutation.proof);
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    command
}

/// A file with a mutation in it; dropping it puts the file right again.
struct Broken {
    path: PathBuf,
    right: String,
}

impl Broken {
    fn new(path: PathBuf, mutation: &Mutation) -> Result<Self> {
        let right = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if right.matches(mutation.from).count() != 1 {
            bail!("{:?} is not in {} exactly once", mutation.from, path.display());
        }
        fs::write(&path, right.replace(mutation.from, mutation.to))?;
        Ok(Self { path, right })
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.right) {
            println!("{} is still broken: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes a line that is broken here changes the mutation with it.
    #[test]
    fn mutations_are_found_in_the_engine() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../apiserver/storage/src/backends/log");
        for mutation in MUTATIONS {
            let text = fs::read_to_string(folder.join(mutation.file)).expect("the file is there");
            assert_eq!(text.matches(mutation.from).count(), 1, "{}", mutation.name);
        }
    }
}
