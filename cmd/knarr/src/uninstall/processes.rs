//! Processes of a cluster, known by the records that they write of themselves and by the files of the cluster that they hold
//! open, and never by their command lines, which any process may choose.

use super::directory::Directories;
use super::kernel::claims_of;
use crate::process_table::{Table, identity};
use anyhow::{bail, ensure};
use machinery_runtime::Runtime;
use node_sys::process::ProcessIdentity;
use std::time::Duration;

/// Longest time from the request to end until a process has ended.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for one that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The processes of one cluster that run.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    servers: Vec<ProcessIdentity>,
    agent: Vec<ProcessIdentity>,
    containerd: Vec<ProcessIdentity>,
    /// Shims of containerd, which hold the pods' processes.
    shims: Vec<ProcessIdentity>,
    /// Everything below the shims.
    pods: Vec<ProcessIdentity>,
}

impl Processes {
    pub(crate) fn of(directories: &Directories) -> anyhow::Result<Self> {
        let table = Table::read()?;
        let mut found = Self::default();
        if let Some(server) = &directories.server {
            found
                .servers
                .extend(ProcessIdentity::recorded(&server.join("server.pid")));
            let holders = table
                .with_open_files_below(&server.join("storage"))
                .into_iter()
                .filter_map(identity);
            let known = found.servers.clone();
            found
                .servers
                .extend(holders.filter(|holder| !known.contains(holder)));
        }
        if let Some(agent) = &directories.agent {
            let containerd = agent.join("containerd");
            found
                .agent
                .extend(ProcessIdentity::recorded(&agent.join("agent.pid")));
            // One that no server has started has the lock of its claim alone.
            for lock in claims_of(agent) {
                let holders = table
                    .with_open_files_below(&lock)
                    .into_iter()
                    .filter_map(identity);
                let known = found.agent.clone();
                found
                    .agent
                    .extend(holders.filter(|holder| !known.contains(holder)));
            }
            let recorded = ProcessIdentity::recorded(&containerd.join("containerd.pid"));
            let listening = || ProcessIdentity::listening(&containerd.join("containerd.sock"));
            found.containerd.extend(recorded.or_else(listening));
            let shims = table.working_below(&containerd.join("state"));
            found
                .pods
                .extend(table.descendants(&shims).into_iter().filter_map(identity));
            found.shims.extend(shims.into_iter().filter_map(identity));
        }
        Ok(found)
    }

    pub(crate) fn list(&self) -> Vec<String> {
        let kinds = [
            ("server", &self.servers),
            ("node agent", &self.agent),
            ("containerd", &self.containerd),
            ("pods", &self.pods),
        ];
        let running = kinds.into_iter().filter(|(_, all)| !all.is_empty());
        running
            .map(|(kind, all)| format!("process     {kind} ({})", pids(all.iter())))
            .collect()
    }

    /// Refuses while a process runs that would start the others again.
    pub(super) fn refuse_keepers(&self) -> anyhow::Result<()> {
        let keepers = || self.servers.iter().chain(&self.agent);
        if keepers().next().is_none() {
            return Ok(());
        }
        bail!(
            "the cluster runs: {}; end it with `kill {}`, or with its unit where systemd keeps it, or give --stop",
            self.list().join(", ").replace("process     ", ""),
            keepers()
                .map(|process| process.pid.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        )
    }

    /// Refuses while any process runs.
    pub(crate) fn refuse_any(&self) -> anyhow::Result<()> {
        ensure!(
            self.list().is_empty(),
            "the cluster was started again: {}; disable what starts it (`systemctl disable --now knarr`)",
            self.list().join(", ").replace("process     ", "")
        );
        Ok(())
    }

    /// Ends them: first those that would start another again, and waits for each. The pods' processes have the grace period from
    /// the request to end until they are killed.
    pub(crate) async fn end(&self, grace: Duration, runtime: &Runtime) -> anyhow::Result<()> {
        for group in [&self.servers, &self.agent] {
            terminate(group, END_TIMEOUT, runtime).await?;
        }
        if !grace.is_zero() {
            // Those that stay are killed below.
            let _ = terminate(&self.pods, grace, runtime).await;
        }
        terminate(&self.containerd, END_TIMEOUT, runtime).await?;
        self.end_pods(runtime).await
    }

    /// Kills the pods' processes.
    pub(crate) async fn end_pods(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let held = [&self.pods, &self.shims];
        for process in held.into_iter().flatten() {
            process.kill();
        }
        for group in held {
            ended(group, KILL_TIMEOUT, runtime).await?;
        }
        Ok(())
    }
}

async fn terminate(group: &[ProcessIdentity], timeout: Duration, runtime: &Runtime) -> anyhow::Result<()> {
    for process in group {
        process.terminate();
    }
    ended(group, timeout, runtime).await
}

/// Waits until all of them have ended.
async fn ended(processes: &[ProcessIdentity], timeout: Duration, runtime: &Runtime) -> anyhow::Result<()> {
    let all = async {
        for process in processes {
            // One that has ended cannot be waited for.
            let _ = process.ended().await;
        }
    };
    let _ = runtime.timeout(timeout, all).await;
    let left = processes.iter().find(|process| process.is_alive());
    match left {
        Some(process) => bail!(
            "process {} did not end within {timeout:?}; nothing was removed",
            process.pid
        ),
        None => Ok(()),
    }
}

fn pids<'a>(processes: impl Iterator<Item = &'a ProcessIdentity>) -> String {
    let pids: Vec<String> = processes.map(|process| process.pid.to_string()).collect();
    let word = if pids.len() == 1 { "process" } else { "processes" };
    format!("{word} {}", pids.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn directories(root: &Path) -> Directories {
        fs::create_dir_all(root.join("storage")).unwrap();
        fs::create_dir_all(root.join("agent")).unwrap();
        Directories {
            server: Some(root.to_owned()),
            agent: Some(root.join("agent")),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a process that nobody supervises")]
    fn sleeper(file: Option<&Path>) -> std::process::Child {
        let mut sleeper = std::process::Command::new("sleep");
        if let Some(file) = file {
            sleeper.stdout(fs::File::create(file).unwrap());
        }
        sleeper.arg("1000").spawn().unwrap()
    }

    #[test]
    fn uninstall_names_the_processes_of_a_running_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let directories = directories(&root);
        Processes::of(&directories).unwrap().refuse_any().unwrap();
        let (mut server, mut agent, mut other) = (
            sleeper(Some(&root.join("storage/LOCK"))),
            sleeper(None),
            sleeper(None),
        );
        let record = identity(agent.id()).unwrap().to_text();
        fs::write(root.join("agent/agent.pid"), record).unwrap();
        let found = Processes::of(&directories).unwrap();
        let refusal = found.refuse_keepers().unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("`kill {} {}`", server.id(), agent.id())),
            "{refusal}"
        );
        assert!(!refusal.contains(&other.id().to_string()), "{refusal}");
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        executor
            .block_on(async { found.end(Duration::ZERO, &Runtime::real()).await })
            .unwrap();
        assert!(
            other.try_wait().unwrap().is_none(),
            "a stranger's process goes on"
        );
        other.kill().unwrap();
        for process in [&mut server, &mut agent, &mut other] {
            process.wait().unwrap();
        }
        Processes::of(&directories).unwrap().refuse_any().unwrap();
    }
}
