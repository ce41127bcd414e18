//! Upstream's own control plane on loopback ports, for as long as an [`Upstream`] lives.
//!
//! Everything it writes lies in one folder: data, certificates, logs, and `kubeconfig` for a cluster admin.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::{process, tools};

/// The bearer token of the one user of the static token file, a member of `system:masters`.
const ADMIN_TOKEN: &str = "admin-of-a-cluster-on-loopback";

/// Attempts until a starting server is ready: 120 × 500 ms.
const READY_ATTEMPTS: u32 = 120;
const READY_PAUSE: Duration = Duration::from_millis(500);

/// Running programs, stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub kubeconfig: PathBuf,
    pub server: String,
    pub token: &'static str,
    children: Vec<Child>,
    folder: PathBuf,
}

/// Components besides etcd and the API server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// kube-controller-manager and kube-scheduler.
    pub controllers: bool,
    /// Synchronise every write to the disk, as a real cluster does; comparisons of answers need not.
    pub durable: bool,
}

impl Upstream {
    /// Starts etcd and kube-apiserver with `folder` (made empty) to write into, and waits until `/readyz`.
    pub(crate) fn start(config: &Config, folder: &Path, options: Options) -> Result<Self> {
        tools::ensure(config, &["etcd", "kube-apiserver", "kubectl"])?;
        if folder.try_exists()? {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let [client, peer, secure] = free_ports()?;
        let server = format!("https://127.0.0.1:{secure}");
        let mut upstream = Self {
            kubeconfig: folder.join("kubeconfig"),
            server: server.clone(),
            token: ADMIN_TOKEN,
            children: Vec::new(),
            folder: folder.to_owned(),
        };
        upstream.start_etcd(config, client, peer, options)?;
        upstream.start_apiserver(config, client, secure)?;
        fs::write(&upstream.kubeconfig, kubeconfig(&server, ADMIN_TOKEN))?;
        wait_ready(config, &upstream.kubeconfig)
            .with_context(|| format!("see the logs in {}", folder.display()))?;
        if options.controllers {
            tools::ensure(config, &["kube-controller-manager"])?;
            upstream.start_controller_manager(config)?;
            tools::ensure(config, &["kube-scheduler"])?;
            upstream.start_scheduler(config)?;
        }
        Ok(upstream)
    }

    fn start_etcd(&mut self, config: &Config, client: u16, peer: u16, options: Options) -> Result<()> {
        let client = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let data = self.folder.join("etcd").display().to_string();
        self.spawn(
            config,
            "etcd",
            &[
                "--data-dir",
                &data,
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &format!("default={peer}"),
                if options.durable {
                    "--unsafe-no-fsync=false"
                } else {
                    "--unsafe-no-fsync"
                },
                "--log-level",
                "warn",
            ],
        )
    }

    fn start_apiserver(&mut self, config: &Config, etcd: u16, secure: u16) -> Result<()> {
        let tokens = self.folder.join("tokens.csv");
        fs::write(&tokens, format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"))?;
        let key = self.folder.join("service-account.key");
        process::run(
            process::command("openssl")
                .args(["genrsa", "-out"])
                .arg(&key)
                .arg("2048")
                .stderr(Stdio::null()),
        )?;
        let key = key.display().to_string();
        self.spawn(
            config,
            "kube-apiserver",
            &[
                "--etcd-servers",
                &format!("http://127.0.0.1:{etcd}"),
                "--cert-dir",
                &self.folder.join("certs").display().to_string(),
                "--secure-port",
                &secure.to_string(),
                "--bind-address",
                "127.0.0.1",
                "--token-auth-file",
                &tokens.display().to_string(),
                "--authorization-mode",
                "Node,RBAC",
                // As kubeadm starts it.
                "--enable-admission-plugins",
                "NodeRestriction",
                "--service-account-key-file",
                &key,
                "--service-account-signing-key-file",
                &key,
                "--service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
                "--service-cluster-ip-range",
                "10.96.0.0/16",
                "--allow-privileged",
            ],
        )
    }

    /// The processes that serve: etcd and the API server.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().take(2).map(Child::id).collect()
    }

    /// Authority of the API server's certificate, as PEM.
    pub(crate) fn certificate_authority(&self) -> PathBuf {
        self.folder.join("certs/apiserver.crt")
    }

    /// Starts it without the node lifecycle controller: fake nodes send no leases and must stay Ready.
    fn start_controller_manager(&mut self, config: &Config) -> Result<()> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let [port] = free_ports()?;
        self.spawn(
            config,
            "kube-controller-manager",
            &[
                "--kubeconfig",
                &kubeconfig,
                "--secure-port",
                &port.to_string(),
                "--bind-address",
                "127.0.0.1",
                "--cert-dir",
                &self.folder.join("controller-manager").display().to_string(),
                "--controllers=*,-node-lifecycle-controller",
                "--leader-elect=false",
                "--allocate-node-cidrs=false",
                "--use-service-account-credentials",
                "--service-account-private-key-file",
                &self.folder.join("service-account.key").display().to_string(),
                "--root-ca-file",
                &self.folder.join("certs/apiserver.crt").display().to_string(),
            ],
        )
    }

    fn start_scheduler(&mut self, config: &Config) -> Result<()> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let [port] = free_ports()?;
        self.spawn(
            config,
            "kube-scheduler",
            &[
                "--kubeconfig",
                &kubeconfig,
                "--secure-port",
                &port.to_string(),
                "--bind-address",
                "127.0.0.1",
                "--cert-dir",
                &self.folder.join("scheduler").display().to_string(),
                "--leader-elect=false",
            ],
        )
    }

    fn spawn(&mut self, config: &Config, name: &str, arguments: &[&str]) -> Result<()> {
        let log = fs::File::create(self.folder.join(format!("{name}.log")))?;
        let child = process::command(config.tools.join(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        self.children.push(child);
        Ok(())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // Clients go before what they talk to.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks with kubectl, which speaks every way of identifying that a kubeconfig can hold.
pub(crate) fn wait_ready(config: &Config, kubeconfig: &Path) -> Result<()> {
    for _ in 0..READY_ATTEMPTS {
        let ready = kubeconfig.try_exists()?
            && process::command(config.tools.join("kubectl"))
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .args(["get", "--raw", "/readyz", "--request-timeout=5s"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?
                .success();
        if ready {
            return Ok(());
        }
        std::thread::sleep(READY_PAUSE);
    }
    bail!("the server of {} does not get ready", kubeconfig.display())
}

/// Ports that were free a moment ago, on loopback.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let listeners = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn kubeconfig(server: &str, token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: upstream
clusters:
- name: upstream
  cluster: {{server: '{server}', insecure-skip-tls-verify: true}}
contexts:
- name: upstream
  context: {{cluster: upstream, user: admin}}
users:
- name: admin
  user: {{token: '{token}'}}
"
    )
}
