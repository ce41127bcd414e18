//! The server: adopted where it runs, started where nothing stands in its way.

use super::server_line::{RunningFlags, ServerLine};
use super::{Look, read, say, wait};
use crate::agent_claim;
use crate::check::{self, CheckArguments};
use crate::network_namespace::NetworkNamespace;
use crate::server::identities;
use crate::server::paths::Paths;
use anyhow::{Context, bail};
use machinery_client::Client;
use machinery_runtime::Runtime;
use node_sys::exec::Daemon;
use node_sys::process::ProcessIdentity;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// The node agent's ports.
const AGENT_PORTS: [u16; 2] = [10250, 10248];

/// A server that is ready.
pub(super) struct ReadyServer {
    /// Of the cluster's administrator.
    pub(super) client: Client,
    /// Name of the node that its agent registers.
    pub(super) node: String,
    pub(super) flags: RunningFlags,
}

/// The server, as soon as it is ready.
///
/// # Errors
/// The machine lacks something, another cluster runs on it, a port is taken, or the server ends.
pub(super) async fn ensure(line: &ServerLine, runtime: &Runtime) -> anyhow::Result<ReadyServer> {
    let paths = Paths::new(&line.data_dir);
    let running = ProcessIdentity::recorded(&paths.process());
    let server = match &running {
        Some(running) => {
            say(&format!(
                "==> the server is already running (process {})",
                running.pid
            ))?;
            running.clone()
        }
        None => {
            refuse_obstacles(line, &paths)?;
            start(line, &paths)?
        }
    };
    if let Some(elsewhere) = NetworkNamespace::elsewhere(server.pid) {
        bail!(
            "the server of {} is in another network namespace: run this by `{}`",
            line.data_dir.display(),
            elsewhere.entry()
        );
    }
    if running.is_some() {
        // One of before may never be ready, or have no page of its flags.
        refuse_other_binary(&server)?;
    }
    let what = format!("the server to be ready (its log is {})", log(&paths).display());
    let client = wait(runtime, &what, || look(&paths, &server, runtime)).await?;
    let page = client.get_path_as("/flagz", "text/plain").await;
    let page = page.context("reading the flags of the server that runs")?;
    let flags = RunningFlags::of(&String::from_utf8_lossy(&page));
    if running.is_some() {
        refuse_other_flags(line, &server, &flags)?;
        say_flags_beyond(line, &flags)?;
    }
    let node = match flags.value("hostname-override") {
        Some(name) => name.to_owned(),
        None => identities::host_name()?,
    };
    Ok(ReadyServer { client, node, flags })
}

/// Refuses to take a server of before an update for one of this binary.
fn refuse_other_binary(server: &ProcessIdentity) -> anyhow::Result<()> {
    if server.runs_own_program() != Some(false) {
        return Ok(());
    }
    bail!(
        "the server that runs is of another binary; end it with `kill {}` and run this again, which starts it with this one (pods go \
         on meanwhile)",
        server.pid
    )
}

/// Refuses flags that would have no effect, since a server with others runs.
fn refuse_other_flags(
    line: &ServerLine,
    server: &ProcessIdentity,
    running: &RunningFlags,
) -> anyhow::Result<()> {
    let differences = line.differences(running);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "the server that runs has other flags: {}; end it with `kill {}` and run this again, which starts it with these (pods go \
         on meanwhile)",
        differences.join(", "),
        server.pid
    )
}

/// Says which flags a running server keeps though they are not given; none are left where flags are given, which are all then.
fn say_flags_beyond(line: &ServerLine, running: &RunningFlags) -> anyhow::Result<()> {
    let beyond = line.beyond(running);
    if beyond.is_empty() {
        return Ok(());
    }
    let beyond: Vec<String> = beyond
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
    say(&format!(
        "==> it goes on with flags that are not given: {}",
        beyond.join(" ")
    ))
}

/// Looks for what would keep a cluster from starting, and says what to do about it.
fn refuse_obstacles(line: &ServerLine, paths: &Paths) -> anyhow::Result<()> {
    say("==> checking the machine")?;
    check::run_quietly(&CheckArguments::of(&line.data_dir))?;
    agent_claim::refuse_another(&agent_claim::record()?, &paths.agent())
        .context("a machine has one cluster, and another one runs on it")?;
    refuse_port(
        line.secure_port,
        "end it, or choose another port with --secure-port",
    )?;
    // An agent outlives its server, and is adopted by the next one.
    if ProcessIdentity::recorded(&paths.in_agent("agent.pid")).is_none() {
        for port in AGENT_PORTS {
            refuse_port(
                port,
                "the node agent needs it: end the other program (another Kubernetes?)",
            )?;
        }
    }
    Ok(())
}

fn refuse_port(port: u16, advice: &str) -> anyhow::Result<()> {
    match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {port} is in use by another program, which `ss -ltnp 'sport = :{port}'` shows; {advice}"
        ),
        // Whatever else is wrong is reported by the program that needs the port.
        _ => Ok(()),
    }
}

fn start(line: &ServerLine, paths: &Paths) -> anyhow::Result<ProcessIdentity> {
    say("==> starting the server")?;
    node_sys::fs::make_private_folder(&line.data_dir)
        .with_context(|| format!("making --data-dir {}", line.data_dir.display()))?;
    let daemon = Daemon {
        program: std::env::current_exe().context("finding this program")?,
        args: line.words.clone(),
        env: Vec::new(),
        log: log(paths),
        pid_file: paths.process(),
    };
    daemon.start().context("starting the server")
}

fn log(paths: &Paths) -> PathBuf {
    paths.process().with_file_name("server.log")
}

/// One look at whether the server is ready.
async fn look(paths: &Paths, server: &ProcessIdentity, runtime: &Runtime) -> Result<Client, Look> {
    if !server.is_alive() {
        let log = log(paths);
        return Err(Look::Failed(anyhow::anyhow!(
            "the server ended: {}; its log is {}",
            last_line(&log),
            log.display()
        )));
    }
    // The server rewrites it where its address is another than at the last start.
    let client = Client::from_kubeconfig(&paths.admin(), runtime.clone()).await;
    let client = client.map_err(|error| Look::NotYet(error.chain()))?;
    client
        .get_path("/readyz", &[])
        .await
        .map_err(|error| Look::NotYet(error.chain()))?;
    read(&client, "/api/v1/namespaces/default").await?;
    Ok(client)
}

/// The last line of a log that says why a program ended.
fn last_line(log: &Path) -> String {
    let last = node_sys::supervise::last_line(log).unwrap_or_else(|| "without a word".to_owned());
    last.trim_start_matches("knarr: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_names_a_port_that_is_taken_and_what_to_do() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let refused = refuse_port(port, "choose another").unwrap_err().to_string();
        assert!(
            refused.contains(&format!("port {port} is in use")) && refused.ends_with("choose another"),
            "{refused}"
        );
        drop(other);
        refuse_port(port, "").unwrap();
    }

    #[test]
    fn up_quotes_the_last_line_of_a_server_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("server.log");
        assert_eq!(last_line(&log), "without a word");
        std::fs::write(&log, "began\nknarr: no space\n\n").unwrap();
        assert_eq!(last_line(&log), "no space");
    }
}
