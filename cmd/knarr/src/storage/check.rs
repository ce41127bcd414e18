//! `knarr storage check`: damage, where it is, and what to do about it.

use crate::server::paths::Paths;
use anyhow::{Context, bail};
use apiserver_storage::{CheckReport, OfflineState, StorageError, check};
use clap::Args;
use machinery_runtime::{RealDisk, Runtime};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// See the module.
#[derive(Args, Debug)]
pub(crate) struct CheckArguments {
    /// The data directory of a server that does not run, or a copy of one
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Check a backup instead
    #[arg(long)]
    from: Option<PathBuf>,
    /// EncryptionConfiguration; encrypted objects that none of its keys decrypts are reported
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
}

/// The log makes up for what is damaged.
const WORKED_AROUND: u8 = 2;
/// A server does not start on it.
const LOST: u8 = 3;
/// Nothing is damaged, and some objects are encrypted with keys that the configuration does not have.
const LOCKED: u8 = 4;
/// Number of them that are named.
const MAX_NAMED: usize = 20;

pub(crate) fn run(arguments: &CheckArguments, runtime: &Runtime) -> anyhow::Result<ExitCode> {
    let (mut text, mut code) = match &arguments.from {
        Some(file) => of_backup(file)?,
        None => of_directory(&arguments.data_dir)?,
    };
    if code < LOST {
        let (more, locked) = encrypted(arguments, runtime)?;
        text += &more;
        code = if locked && code == 0 { LOCKED } else { code };
    }
    write!(std::io::stdout(), "{text}").context("writing to standard output")?;
    Ok(ExitCode::from(code))
}

/// Lines about encrypted objects, and whether the keys at hand leave some of them closed.
fn encrypted(arguments: &CheckArguments, runtime: &Runtime) -> anyhow::Result<(String, bool)> {
    let disk = RealDisk::new();
    let state = match &arguments.from {
        Some(file) => OfflineState::of_backup(&disk, file)?,
        None => OfflineState::open(&disk, &Paths::new(&arguments.data_dir).storage())?,
    };
    let count = state.entries().filter(|entry| entry.record.is_sealed()).count();
    let Some(config) = &arguments.encryption_provider_config else {
        let plural = if count == 1 { " is" } else { "s are" };
        let hint = "--encryption-provider-config FILE says whether its keys open all of them";
        let text = format!("noted    {count} object{plural} encrypted: {hint}\n");
        return Ok((if count == 0 { String::new() } else { text }, false));
    };
    let encryption = crate::server::load(config, runtime)?;
    let closed = state.sealed(&encryption).filter_map(|(_, error)| error);
    let closed: Vec<StorageError> = closed.collect();
    let mut text = String::new();
    for error in closed.iter().take(MAX_NAMED) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "locked   {error}");
    }
    let what = if closed.is_empty() { "ok" } else { "locked" };
    let _ = writeln!(
        text,
        "{what:<8} {} of {count} encrypted objects are opened by the keys of {}",
        count - closed.len(),
        config.display()
    );
    Ok((text, !closed.is_empty()))
}

fn of_backup(file: &Path) -> anyhow::Result<(String, u8)> {
    match OfflineState::of_backup(&RealDisk::new(), file) {
        Ok(state) => {
            let (objects, revision) = (state.entries().count(), state.revision());
            let text = format!("ok       {objects} objects at revision {revision}, every checksum holds\n");
            Ok((text, 0))
        }
        Err(error @ StorageError::Corrupt { .. }) => {
            let text =
                format!("damaged  {error}\nto do    use another backup: nothing of this one is restored\n");
            Ok((text, LOST))
        }
        Err(error) => Err(error.into()),
    }
}

fn of_directory(data_dir: &Path) -> anyhow::Result<(String, u8)> {
    let folder = Paths::new(data_dir).storage();
    let report = match check(&RealDisk::new(), &folder) {
        Err(StorageError::Locked(_)) => bail!(
            "a server runs in {}: it reads everything again by itself (metric knarr_storage_damaged_files, \
             /readyz/storage-integrity); stop it, or check a copy",
            data_dir.display()
        ),
        report => report?,
    };
    Ok(summary_of(data_dir, &report))
}

fn summary_of(data_dir: &Path, report: &CheckReport) -> (String, u8) {
    let mut text = String::new();
    let line = |text: &mut String, mark: &str, what: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{mark:<8} {what}");
    };
    line(
        &mut text,
        "read",
        format!("{} files, {} bytes", report.files, report.bytes),
    );
    for finding in &report.findings {
        line(&mut text, "damaged", finding.problem.clone());
    }
    match &report.start {
        Ok(start) => {
            for problem in &start.problems {
                line(&mut text, "noted", problem.clone());
            }
            if start.torn_bytes > 0 {
                let what = format!(
                    "{} bytes of a write that was never acknowledged are at the end, as after a power loss",
                    start.torn_bytes
                );
                line(&mut text, "noted", what);
            }
            let what = format!(
                "a server starts with {} objects at revision {}",
                start.objects, start.revision
            );
            line(&mut text, "ok", what);
            if report.findings.is_empty() && start.problems.is_empty() {
                return (text, 0);
            }
            let what = "nothing is lost: start the server, which writes a new checkpoint, take a backup, and look \
                        at the disk";
            line(&mut text, "to do", what.to_owned());
            (text, WORKED_AROUND)
        }
        Err(why) => {
            line(&mut text, "lost", format!("a server does not start: {why}"));
            lost(data_dir, report, &mut |what| line(&mut text, "to do", what));
            (text, LOST)
        }
    }
}

fn lost(data_dir: &Path, report: &CheckReport, to_do: &mut dyn FnMut(String)) {
    let dir = data_dir.display();
    to_do(format!("keep {dir} as it is, and copy it before anything else"));
    to_do("start from the newest backup: knarr storage restore BACKUP --data-dir NEW".to_owned());
    if let Some(revision) = report.readable {
        to_do(format!(
            "or from what is whole here, up to revision {revision}: \
             knarr storage backup --up-to-damage FILE --data-dir {dir}"
        ));
    }
    to_do("check the disk before it is used again".to_owned());
}
