//! `knarr stop`: ends a cluster on this machine and leaves its files, and what it has in the kernel, for the next start.
//!
//! Each process starts the next one again as long as it runs, and pods outlive all of them: the server ends first, then the agent,
//! the pods' processes, and containerd with its shims.

use crate::uninstall::{Directories, Processes};
use anyhow::{Context, bail};
use clap::Args;
use machinery_runtime::Runtime;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Data directory of the server, or of an agent without one
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Seconds from the signal to end until processes of pods are killed
    #[arg(long, default_value_t = 30)]
    grace_period: u32,
}

pub(crate) fn run(arguments: &StopArguments) -> anyhow::Result<()> {
    let directories = Directories::locate(&arguments.data_dir)?;
    if !node_sys::machine::is_root() {
        bail!("stopping a cluster needs root: run this as root");
    }
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    let grace = Duration::from_secs(arguments.grace_period.into());
    executor.block_on(async { stop(&directories, grace, &Runtime::real()).await })
}

async fn stop(directories: &Directories, grace: Duration, runtime: &Runtime) -> anyhow::Result<()> {
    let running = Processes::of(directories)?;
    let list = running.list();
    if list.is_empty() {
        return say("nothing of the cluster runs");
    }
    for line in &list {
        say(line)?;
    }
    running.end(grace, runtime).await?;
    // What pods have started meanwhile.
    Processes::of(directories)?.end_pods(runtime).await?;
    Processes::of(directories)?.refuse_any()?;
    say("stopped")
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_sys::process::ProcessIdentity;
    use std::path::Path;

    #[expect(clippy::disallowed_methods, reason = "processes that nobody supervises")]
    fn shell(script: &str, folder: &Path) -> std::process::Child {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).current_dir(folder).spawn().unwrap()
    }

    fn stopped(root: &Path) {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let directories = Directories::locate(root).unwrap();
        let grace = Duration::from_secs(100);
        executor
            .block_on(async { stop(&directories, grace, &Runtime::real()).await })
            .unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread that nobody supervises")]
    fn stop_ends_pods_that_nothing_else_keeps_and_leaves_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let task = root.join("agent/containerd/state/task");
        for made in [&root.join("storage"), &task] {
            std::fs::create_dir_all(made).unwrap();
        }
        std::fs::write(root.join("notes"), "a user's own").unwrap();
        // A shim with a pod's process, which works elsewhere and writes down that it got the signal.
        let place = task.display();
        let pod = format!(
            "trap 'echo told > {place}/told; exit' TERM; echo > {place}/up; while :; do sleep 0.01; done"
        );
        let mut shim = shell(&format!("(cd /; {pod}) & wait"), &task);
        while !task.join("up").try_exists().unwrap() {
            std::thread::yield_now();
        }
        let mut agent = shell("exec sleep 1000", Path::new("/"));
        let record = ProcessIdentity::of(agent.id()).unwrap().to_text();
        std::fs::write(root.join("agent/agent.pid"), record).unwrap();
        let reaper = std::thread::spawn(move || (shim.wait().unwrap(), agent.wait().unwrap()));
        stopped(&root);
        reaper.join().unwrap();
        assert_eq!(std::fs::read_to_string(task.join("told")).unwrap(), "told\n");
        assert!(root.join("notes").is_file() && root.join("agent/agent.pid").is_file());
        stopped(&root);
    }
}
