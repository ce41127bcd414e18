//! `knarr up`: from a machine that has what a node needs to a running cluster with a first workload.
//!
//! [`server`] starts the server, unless it runs; [`node`] waits for the node and its image; [`workload`] runs a Deployment behind a
//! Service and asks it over the network. Every step looks before it acts, so that running it again is harmless.

mod node;
mod server;
mod workload;

use anyhow::{Context, bail};
use clap::Args;
use machinery_client::Client;
use machinery_runtime::Runtime;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that one step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at a thing that is awaited.
const PAUSE: Duration = Duration::from_millis(50);
const DEFAULT_PORT: u16 = 6443;

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Data directory
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Port of the API server
    #[arg(long, default_value_t = DEFAULT_PORT)]
    secure_port: u16,
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
    let client = server::ensure(arguments, runtime).await?;
    node::wait_until_ready(&client, &arguments.data_dir).await?;
    if !arguments.no_workload {
        node::ensure_image(runtime, &arguments.data_dir).await?;
        workload::run(&client).await?;
    }
    let seconds = (runtime.monotonic() - began).as_secs_f64();
    say(&format!("==> done in {seconds:.1} s"))?;
    say(&next_steps(arguments, &own_name()))
}

/// Commands to type next.
fn next_steps(arguments: &UpArguments, knarr: &str) -> String {
    let data_dir = arguments.data_dir.as_path();
    let mut flags = match data_dir == Path::new(crate::server::DEFAULT_DATA_DIR) {
        true => String::new(),
        false => format!(" --data-dir {}", quoted(data_dir)),
    };
    for word in shared_flags(&arguments.server_flags) {
        flags.push_str(&format!(" {}", quoted(Path::new(&word))));
    }
    let kubeconfig = quoted(&crate::server::paths::Paths::new(data_dir).admin());
    let mut lines = vec![
        "\nType next:\n".to_owned(),
        format!("    export KUBECONFIG={kubeconfig}"),
        "    kubectl get nodes,pods,services --all-namespaces".to_owned(),
    ];
    if !arguments.no_workload {
        lines.push("    kubectl scale deployment hello --replicas=5".to_owned());
    }
    lines.push(format!(
        "    {knarr} uninstall{flags} --stop --yes    # removes all of it"
    ));
    lines.join("\n")
}

/// Words of the server's flags that `knarr uninstall` has to know, too.
fn shared_flags(server_flags: &[OsString]) -> Vec<OsString> {
    let mut words = server_flags.iter();
    let mut shared = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        for flag in ["--cgroup-root", "--container-runtime-endpoint"] {
            if text == flag {
                shared.push(word.clone());
                shared.extend(words.next().cloned());
            } else if text.starts_with(&format!("{flag}=")) {
                shared.push(word.clone());
            }
        }
    }
    shared
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

/// Waits until `look` returns a value, and tells the last problem where it does not in time.
async fn wait<T, F>(runtime: &Runtime, what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, Look>>,
{
    say(&format!("    waiting for {what}"))?;
    let deadline = runtime.monotonic() + STEP_TIMEOUT;
    loop {
        let problem = match look().await {
            Ok(found) => return Ok(found),
            Err(Look::Failed(error)) => return Err(error),
            Err(Look::NotYet(problem)) => problem,
        };
        if runtime.monotonic() > deadline {
            bail!("waited {} s for {what}: {problem}", STEP_TIMEOUT.as_secs());
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

    #[test]
    fn up_tells_what_to_type_next() {
        let arguments = |data_dir: &str, no_workload, flags: &[&str]| UpArguments {
            data_dir: data_dir.into(),
            secure_port: DEFAULT_PORT,
            no_workload,
            server_flags: flags.iter().map(OsString::from).collect(),
        };
        let usual = next_steps(
            &arguments(
                "/var/lib/knarr",
                false,
                &["--cgroup-root=/own", "--max-pods", "7"],
            ),
            "knarr",
        );
        assert!(
            usual.contains("export KUBECONFIG=/var/lib/knarr/admin.kubeconfig\n"),
            "{usual}"
        );
        assert!(
            usual.contains("    knarr uninstall --cgroup-root=/own --stop --yes "),
            "{usual}"
        );
        let flags = ["--container-runtime-endpoint", "/run/c.sock"];
        let other = next_steps(&arguments("/srv/it's here", true, &flags), "/opt/knarr");
        assert!(
            other.contains(r"KUBECONFIG='/srv/it'\''s here/admin.kubeconfig'"),
            "{other}"
        );
        let uninstall = r"/opt/knarr uninstall --data-dir '/srv/it'\''s here' --container-runtime-endpoint /run/c.sock --stop --yes";
        assert!(other.contains(uninstall), "{other}");
        assert!(!other.contains("scale"), "{other}");
    }
}
