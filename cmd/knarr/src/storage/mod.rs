//! `knarr storage`: what the owner of the data does with it. [`check`] looks for damage, [`backup`] saves one revision
//! while the server runs or while it does not, [`restore`] begins a data directory from one, [`export`] writes objects as
//! YAML or JSON.

mod backup;
mod check;
mod export;
mod restore;
mod source;

use anyhow::Context;
use clap::{Args, Subcommand};
use machinery_runtime::Runtime;
use std::process::ExitCode;

/// Flags of `knarr storage`.
#[derive(Args, Debug)]
pub(crate) struct StorageArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Checks a data directory or a backup, and names each damage with its remedy
    Check(check::CheckArguments),
    /// Saves one revision of all objects to a file, while the server runs or while it does not
    Backup(backup::BackupArguments),
    /// Creates a data directory from a backup or from a snapshot of etcd
    Restore(restore::RestoreArguments),
    /// Writes objects as YAML or JSON
    Export(export::ExportArguments),
}

pub(crate) fn run(arguments: &StorageArguments) -> anyhow::Result<ExitCode> {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting")?;
    executor.block_on(async {
        let runtime = Runtime::real();
        match &arguments.action {
            Action::Check(arguments) => check::run(arguments, &runtime),
            Action::Backup(arguments) => done(backup::run(arguments, &runtime).await),
            Action::Restore(arguments) => done(restore::run(arguments, &runtime)),
            Action::Export(arguments) => done(export::run(arguments, &runtime).await),
        }
    })
}

fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
