//! `knarr up`: from a machine that has what a node needs to a running cluster with a first workload.
//!
//! [`server_line`] reads the flags as the server will; [`server`] starts the server, unless it runs; [`node`] waits for the node and its image; [`workload`] runs a Deployment behind a
//! Service and asks it over the network. Every step looks before it acts, so that running it again is harmless.

mod node;
mod server;
mod server_line;
mod workload;

use crate::network_namespace::NetworkNamespace;
use anyhow::{Context, bail};
use clap::Args;
use machinery_client::Client;
use machinery_runtime::Runtime;
use server_line::{RunningFlags, ServerLine};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that one step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two lines on what is missing.
const WORD_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of reads of a thing that is awaited.
const PAUSE: Duration = Duration::from_millis(50);

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Data directory [default: /var/lib/knarr]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Port of the API server [default: 6443]
    #[arg(long)]
    secure_port: Option<u16>,
    /// Start the cluster only, without the first workload
    #[arg(long)]
    no_workload: bool,
    /// Further flags of `knarr server`, after `--`
    #[arg(last = true, value_name = "SERVER FLAGS")]
    server_flags: Vec<OsString>,
}

pub(crate) fn run(arguments: &UpArguments) -> anyhow::Result<()> {
    if !node_sys::machine::is_root() {
        bail!(
            "a node needs root: run this as root, or `knarr server --disable-agent` for a control plane alone"
        );
    }
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    executor.block_on(async { up(arguments, &Runtime::real()).await })
}

async fn up(arguments: &UpArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let began = runtime.monotonic();
    let line = ServerLine::of(arguments)?;
    let server = server::ensure(&line, runtime).await?;
    let node = node::wait_until_ready(&server, &line.data_dir).await?;
    let steps = NextSteps {
        line: &line,
        running: &server.flags,
        has_workload: !arguments.no_workload,
        knarr: own_name(),
        entry: NetworkNamespace::of_this_process().map(|own| own.entry() + " "),
    };
    if steps.has_workload {
        node.refuse_closed(&steps.kubectl())?;
        node::ensure_image(runtime, &line.data_dir).await?;
        workload::run(&server.client).await?;
    }
    let seconds = (runtime.monotonic() - began).as_secs_f64();
    say(&format!("==> done in {seconds:.1} s"))?;
    say(&steps.text())
}

/// Commands to type next.
struct NextSteps<'a> {
    line: &'a ServerLine,
    running: &'a RunningFlags,
    has_workload: bool,
    /// This program, as the user's shell finds it.
    knarr: String,
    /// Words that lead into the network namespace of the cluster.
    entry: Option<String>,
}

impl NextSteps<'_> {
    fn kubeconfig(&self) -> String {
        quoted(&crate::server::paths::Paths::new(&self.line.data_dir).admin())
    }

    fn entry(&self) -> &str {
        self.entry.as_deref().unwrap_or_default()
    }

    /// kubectl with the administrator's file.
    fn kubectl(&self) -> String {
        format!("{}kubectl --kubeconfig {}", self.entry(), self.kubeconfig())
    }

    fn text(&self) -> String {
        let (entry, knarr) = (self.entry(), &self.knarr);
        let mut lines = vec![
            "\nType next:\n".to_owned(),
            format!("    export KUBECONFIG={}", self.kubeconfig()),
            format!("    {entry}kubectl get nodes,pods,services --all-namespaces"),
        ];
        if self.has_workload {
            lines.push(format!("    {entry}kubectl scale deployment hello --replicas=5"));
        }
        let flags = self.line.uninstall_flags(self.running);
        lines.push(format!(
            "    {entry}{knarr} uninstall{flags} --stop --yes    # removes all of it"
        ));
        lines.join("\n")
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@=".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The word by which the user's shell finds this program.
fn own_name() -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| "knarr".into());
    match node_sys::exec::find_program("knarr").and_then(|found| found.canonicalize().ok()) {
        Some(found) if found == own => "knarr".to_owned(),
        _ => quoted(&own),
    }
}

/// Waits until `look` returns a value, and returns the last problem where it does not in time.
async fn wait<T, F>(runtime: &Runtime, what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, Look>>,
{
    say(&format!("    waiting for {what}"))?;
    let deadline = runtime.monotonic() + STEP_TIMEOUT;
    let mut next_word = runtime.monotonic() + WORD_INTERVAL;
    loop {
        let problem = match look().await {
            Ok(found) => return Ok(found),
            Err(Look::Failed(error)) => return Err(error),
            Err(Look::NotYet(problem)) => problem,
        };
        let now = runtime.monotonic();
        if now > deadline {
            bail!("waited {} s for {what}: {problem}", STEP_TIMEOUT.as_secs());
        }
        if now > next_word {
            next_word = now + WORD_INTERVAL;
            say(&format!("      not yet: {problem}"))?;
        }
        runtime.sleep(PAUSE).await;
    }
}

/// Outcome of a look that did not find what is awaited.
#[derive(Debug)]
enum Look {
    /// Worth another look; what is missing.
    NotYet(String),
    /// Nothing will come.
    Failed(anyhow::Error),
}

/// Reads a path of the API; a failure is worth another look.
async fn read(client: &Client, path: &str) -> Result<serde_json::Value, Look> {
    let body = client.get_path(path, &[]).await;
    let body = body.map_err(|error| Look::NotYet(error.chain()))?;
    serde_json::from_slice(&body).map_err(|error| Look::NotYet(error.to_string()))
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches};

    fn text(up: &[&str], running: &str, entry: Option<&str>) -> String {
        let command = crate::Arguments::command();
        let words = ["knarr", "up"].iter().chain(up);
        let matches = command.try_get_matches_from(words).unwrap();
        let up = UpArguments::from_arg_matches(matches.subcommand_matches("up").unwrap()).unwrap();
        let steps = NextSteps {
            line: &ServerLine::of(&up).unwrap(),
            running: &RunningFlags::of(running),
            has_workload: !up.no_workload,
            knarr: "/opt/knarr".to_owned(),
            entry: entry.map(str::to_owned),
        };
        steps.text()
    }

    #[test]
    fn up_tells_what_to_type_next() {
        let usual = text(&["--", "--max-pods", "7"], "cgroup-root=/own\nmax-pods=7", None);
        for line in [
            "    export KUBECONFIG=/var/lib/knarr/admin.kubeconfig\n",
            "    kubectl scale deployment hello",
            "    /opt/knarr uninstall --cgroup-root /own --stop --yes ",
        ] {
            assert!(usual.contains(line), "{usual}");
        }
        let flags = ["--data-dir", "/srv/it's here", "--no-workload"];
        let running = "cgroup-root=/\ncontainer-runtime-endpoint=/run/c.sock\n";
        let other = text(&flags, running, Some("nsenter --net=/run/netns/lab "));
        for line in [
            r"KUBECONFIG='/srv/it'\''s here/admin.kubeconfig'",
            "    nsenter --net=/run/netns/lab kubectl get nodes",
            r"    nsenter --net=/run/netns/lab /opt/knarr uninstall --data-dir '/srv/it'\''s here' --container-runtime-endpoint /run/c.sock --stop --yes",
        ] {
            assert!(other.contains(line), "{other}");
        }
        assert!(!other.contains("scale"), "{other}");
    }
}
