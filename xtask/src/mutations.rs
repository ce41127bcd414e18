//! `cargo xtask mutations`: breaks the log engine in one place after the other, and each time a proof must fail.
//!
//! A mutation that every test survives means that the line it breaks is not guarded. Every proof is run once on the engine
//! as it is, where it must pass: a proof that fails anyway guards nothing. Each mutation then costs one build of the storage
//! crate and one run of its proof: about a minute on two cores, half an hour for all. Not a part of `ci`.

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// The result of one mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The proof failed.
    Noticed,
    /// The proof did not end in [`PROOF_SECONDS`].
    Hung,
    /// The proof passed.
    Survived,
    /// The line to break is not there once, or what is broken does not compile.
    Unusable,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Hung => "noticed (the proof hangs)",
            Self::Survived => "SURVIVED",
            Self::Unusable => "UNUSABLE",
        }
    }

    fn is_noticed(self) -> bool {
        matches!(self, Self::Noticed | Self::Hung)
    }
}

/// A proof that takes longer hangs: each passes in a minute where nothing else runs.
const PROOF_SECONDS: u64 = 600;
/// coreutils' `timeout` ends with it when it ended the program.
const TIMED_OUT: i32 = 124;

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let wanted = |own: &&Mutation| own.name.contains(&arguments.name);
    let wanted: Vec<&Mutation> = MUTATIONS.iter().filter(wanted).collect();
    let proofs: BTreeSet<&[&str]> = wanted.iter().map(|own| own.proof).collect();
    for proof in proofs {
        println!("==> the engine as it is: {}", proof.join(" "));
        process::run(&mut test(config, proof, true)).context("the engine as it is must compile")?;
        if prove(config, proof)? != Outcome::Survived {
            bail!("{} fails on the engine as it is", proof.join(" "));
        }
    }
    let mut bad = Vec::new();
    for mutation in &wanted {
        let begun = now();
        let outcome = attempt(config, mutation)?;
        println!(
            "{:<28} {:>4} s  {}",
            outcome.word(),
            begun.elapsed().as_secs(),
            mutation.name
        );
        if !outcome.is_noticed() {
            bad.push(format!("{} ({})", mutation.name, outcome.word()));
        }
    }
    println!(
        "{} of {} mutations noticed",
        wanted.len() - bad.len(),
        wanted.len()
    );
    if bad.is_empty() {
        return Ok(());
    }
    bail!("not noticed: {}", bad.join("; "))
}

#[expect(clippy::disallowed_methods, reason = "a tool says how long its work took")]
fn now() -> Instant {
    Instant::now()
}

fn attempt(config: &Config, mutation: &Mutation) -> Result<Outcome> {
    let folder = config.root.join("apiserver/storage/src/backends/log");
    let broken = match Broken::new(folder.join(mutation.file), mutation) {
        Ok(broken) => broken,
        Err(error) => {
            println!("{error:#}");
            return Ok(Outcome::Unusable);
        }
    };
    let outcome = if process::run(&mut test(config, mutation.proof, true)).is_ok() {
        prove(config, mutation.proof)
    } else {
        Ok(Outcome::Unusable)
    };
    drop(broken);
    outcome
}

/// Runs a proof that is built.
fn prove(config: &Config, proof: &[&str]) -> Result<Outcome> {
    let status = test(config, proof, false).status().context("starting a proof")?;
    Ok(match status.code() {
        Some(0) => Outcome::Survived,
        Some(TIMED_OUT) => Outcome::Hung,
        _ => Outcome::Noticed,
    })
}

fn test(config: &Config, proof: &[&str], is_built_only: bool) -> Command {
    let cargo = process::cargo(&config.root);
    let mut command = process::command("timeout");
    command.current_dir(&config.root);
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if is_built_only {
        // No bound: a machine that does other things may take long to build.
        command.args([
            "0",
            "cargo",
            "test",
            "--quiet",
            "-p",
            "apiserver-storage",
            "--no-run",
        ]);
    } else {
        command.args([&PROOF_SECONDS.to_string(), "cargo", "test", "--quiet"]);
        command.args(["-p", "apiserver-storage"]);
    }
    command.args(proof);
    command.stdout(Stdio::null());
    command.stderr(Stdio::null());
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
