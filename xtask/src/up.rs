//! `cargo xtask up`: from a fresh machine to a running cluster with a first workload, showing each step.
//!
//! Every step looks before it acts, so running it again is harmless: packages that are there stay, a server that
//! answers is kept, the workload is applied again.

use crate::api::Api;
use crate::config::Config;
use crate::host::Host;
use crate::{packages, process};
use anyhow::{Context, Result, bail};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Everything the cluster keeps, where nothing else is said.
const DATA_DIR: &str = "/var/lib/knarr";
/// It and the server's log are nothing for others.
const DATA_DIR_MODE: u32 = 0o750;
const LOG_MODE: u32 = 0o640;

/// Folders of the cluster, and the place where it runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Everything the cluster keeps.
    #[arg(long, default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// The port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Run in a network namespace of this name, made if missing, instead of the machine's own network.
    #[arg(long, value_name = "NAME")]
    pub isolated: Option<String>,
    /// Use a debug build, which is there sooner and runs slower.
    #[arg(long)]
    pub dev: bool,
    /// Run this binary instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with = "dev")]
    pub binary: Option<PathBuf>,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let begun = now();
    packages::ensure(packages::NODE)?;
    packages::ensure(&["curl"])?;
    let knarr = binary(config, arguments)?;
    let host = Host::prepare(arguments.isolated.clone())?;
    DirBuilder::new()
        .recursive(true)
        .mode(DATA_DIR_MODE)
        .create(&arguments.data_dir)
        .context("making the data directory; is this root?")?;
    let api = start(&knarr, &host, arguments)?;
    wait("the node to be Ready", || api.node_is_ready())?;
    images(&knarr, &host, arguments)?;
    let asked = first_workload(config, &api).and_then(|()| ask(&api));
    // `knarr uninstall` refuses a directory with files that are not the cluster's.
    api.remove_credentials()?;
    asked?;
    println!("==> done in {:.0} s", begun.elapsed().as_secs_f64());
    next_steps(&host, arguments);
    Ok(())
}

/// The binary that is given, or one built now.
pub(crate) fn binary(config: &Config, arguments: &Arguments) -> Result<PathBuf> {
    match &arguments.binary {
        Some(binary) => Ok(binary.clone()),
        None => build(config, arguments.dev),
    }
}

fn build(config: &Config, dev: bool) -> Result<PathBuf> {
    let (profile, folder) = if dev {
        ("dev", "debug")
    } else {
        ("release", "release")
    };
    packages::ensure(packages::BUILD)?;
    println!("==> building the binary ({profile})");
    let mut build = process::cargo(&config.root);
    process::run(build.args(["build", "--profile", profile, "--package", "knarr"]))?;
    Ok(config.root.join("target").join(folder).join("knarr"))
}

/// The files of a running cluster, under its data directory.
pub(crate) fn kubeconfig(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.kubeconfig")
}

fn start(knarr: &Path, host: &Host, arguments: &Arguments) -> Result<Api> {
    let api = Api::new(host.clone(), arguments.data_dir.clone(), arguments.secure_port);
    if api.is_ready() {
        println!("==> the server is already running");
        return Ok(api);
    }
    println!("==> starting the server");
    let mut check = host.command(knarr);
    check.arg("check").arg("--data-dir").arg(&arguments.data_dir);
    process::run(&mut check).context("this machine lacks something; see above")?;
    let log = arguments.data_dir.join("server.log");
    let mut server = host.command("setsid");
    server.arg("--fork").arg(knarr).arg("server");
    server.arg("--data-dir").arg(&arguments.data_dir);
    server.args(["--secure-port", &arguments.secure_port.to_string()]);
    server.args(["--cgroup-root", &host.cgroup_root()]);
    server
        .arg("--write-kubeconfig")
        .arg(kubeconfig(&arguments.data_dir));
    server.stdin(std::process::Stdio::null());
    server
        .stdout(
            File::options()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(LOG_MODE)
                .open(&log)?,
        )
        .stderr(File::options().append(true).open(&log)?);
    process::run(&mut server)?;
    wait(
        &format!("the server to be ready (its log is {})", log.display()),
        || Ok(api.is_ready()),
    )?;
    Ok(api)
}

fn images(knarr: &Path, host: &Host, arguments: &Arguments) -> Result<()> {
    println!("==> making the first workload's image");
    let image = arguments.data_dir.join("hello.tar");
    process::run(host.command(knarr).args(["image", "build", "hello"]).arg(&image))?;
    let mut import = host.command(knarr);
    process::run(
        import
            .args(["image", "import", "--data-dir"])
            .arg(&arguments.data_dir)
            .arg(&image),
    )?;
    Ok(fs::remove_file(image)?)
}

fn first_workload(config: &Config, api: &Api) -> Result<()> {
    println!("==> running a Deployment with a Service");
    let manifest = fs::read_to_string(config.root.join("manifests/first-workload.yaml"))?;
    for document in manifest.split("\n---\n") {
        api.apply(document)?;
    }
    wait("its three pods to be ready", || {
        Ok(api.json("/apis/apps/v1/namespaces/default/deployments/hello")?["status"]["readyReplicas"] == 3)
    })
}

/// Asks the workload over its service address from the node, and by its name from a pod.
fn ask(api: &Api) -> Result<()> {
    let service = api.json("/api/v1/namespaces/default/services/hello")?;
    let address = service["spec"]["clusterIP"]
        .as_str()
        .context("the service has no address")?
        .to_owned();
    let mut answer = String::new();
    wait(&format!("an answer at http://{address}"), || {
        answer = api.fetch(&format!("http://{address}/")).unwrap_or_default();
        Ok(!answer.is_empty())
    })?;
    println!("    {}", answer.trim());
    api.delete("/apis/batch/v1/namespaces/default/jobs/ask?propagationPolicy=Background")?;
    wait("an earlier question to be gone", || {
        api.is_gone("/apis/batch/v1/namespaces/default/jobs/ask")
    })?;
    api.apply(ASK)?;
    wait(
        "an answer at http://hello.default.svc.cluster.local, asked from a pod",
        || Ok(api.json("/apis/batch/v1/namespaces/default/jobs/ask")?["status"]["succeeded"] == 1),
    )?;
    let pods = api.json("/api/v1/namespaces/default/pods?labelSelector=job-name%3Dask")?;
    let pod = pods["items"][0]["metadata"]["name"]
        .as_str()
        .context("the job has no pod")?
        .to_owned();
    println!(
        "    {}",
        api.text(&format!("/api/v1/namespaces/default/pods/{pod}/log"))?
            .trim()
    );
    Ok(())
}

const ASK: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: ask, namespace: default}
spec:
  backoffLimit: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: ask
        image: knarr.local/hello:1
        imagePullPolicy: IfNotPresent
        args: [ask, "http://hello.default.svc.cluster.local/"]
"#;

fn next_steps(host: &Host, arguments: &Arguments) {
    let prefix = host.prefix();
    let kubeconfig = kubeconfig(&arguments.data_dir);
    println!("\nType next:\n");
    println!("    export KUBECONFIG={}", kubeconfig.display());
    println!("    {prefix}kubectl get pods,services --all-namespaces");
    println!("    {prefix}kubectl scale deployment hello --replicas=5");
    println!(
        "    cargo xtask down{}          # removes all of it\n",
        flags(arguments)
    );
    println!("kubectl of the right version: cargo xtask tools kubectl");
}

/// Flags with which `down` finds this cluster.
fn flags(arguments: &Arguments) -> String {
    let mut flags = String::new();
    if arguments.data_dir != Path::new(DATA_DIR) {
        flags.push_str(&format!(" --data-dir {}", arguments.data_dir.display()));
    }
    if let Some(name) = &arguments.isolated {
        flags.push_str(&format!(" --isolated {name}"));
    }
    flags
}

/// Nothing in `up` may take longer than this.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Waits until `holds`, saying for what.
fn wait(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    println!("    waiting for {what}");
    let begun = now();
    let mut last = None;
    while begun.elapsed() < STEP_LIMIT {
        match holds() {
            Ok(true) => return Ok(()),
            Ok(false) => last = None,
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    match last {
        Some(error) => Err(error.context(format!("waited {STEP_LIMIT:?} for {what}"))),
        None => bail!("waited {STEP_LIMIT:?} for {what}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "xtask stands outside the product")]
fn now() -> Instant {
    Instant::now()
}
