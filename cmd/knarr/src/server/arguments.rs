//! The flags of `knarr server`; upstream's names where upstream has them.

use super::controllers::{ControllerArguments, duration};
use super::paths::Paths;
use crate::config_file::ConfigArguments;
use crate::forwarded::Forwarded;
use crate::node_arguments::NodeArguments;
use crate::secret::without_credentials;
use anyhow::{Context, bail};
use apiserver_server::{ADMISSION_PLUGINS, ServerConfig};
use apiserver_storage::encryption::Encryption;
use apiserver_storage::{EtcdOptions, EtcdStorage, OfflineState, Quota, Storage, StorageError};
use clap::Args;
use clap::builder::PossibleValuesParser;
use ipnet::IpNet;
use machinery_runtime::{RealDisk, Runtime};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the first answer of etcd.
const ETCD_PATIENCE: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArguments,
    /// Data directory
    #[arg(long, default_value = super::DEFAULT_DATA_DIR)]
    pub(crate) data_dir: PathBuf,
    /// Directory of the files of the node agent, containerd and pods, on another disk for instance; by default `agent` below
    /// the data directory, which is a link to it otherwise
    #[arg(long)]
    pub(crate) agent_data_dir: Option<PathBuf>,
    /// Address on which the server listens; 0.0.0.0 stands for all of IPv4, :: for all
    #[arg(long, default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port of the server; 0 selects a free one
    #[arg(long, default_value_t = 6443)]
    pub(crate) secure_port: u16,
    /// Address at which members of the cluster reach the server
    #[arg(long)]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Write the administrator's kubeconfig here as well
    #[arg(long)]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Run the control plane only, without a node agent (root is not needed)
    #[arg(long)]
    pub(crate) disable_agent: bool,
    #[command(flatten)]
    pub(crate) controllers: ControllerArguments,
    #[command(flatten)]
    pub(crate) election: super::election::ElectionArguments,
    /// Disable the scheduler: pods stay pending until they are bound by other means
    #[arg(long)]
    pub(crate) disable_scheduler: bool,
    #[command(flatten)]
    pub(crate) scheduler: super::scheduler::SchedulerArguments,
    /// Settings of the node agent beside the server
    #[command(flatten, next_help_heading = "Node agent")]
    pub(crate) node: Forwarded<NodeArguments>,
    /// Range of the cluster addresses of Services
    #[arg(long, default_value = "10.96.0.0/16")]
    pub(crate) service_cluster_ip_range: IpNet,
    /// Range of the node ports of Services
    #[arg(long, default_value = "30000-32767", value_parser = port_range)]
    pub(crate) service_node_port_range: (u16, u16),
    /// Domain of the cluster's DNS names
    #[arg(long, default_value = "cluster.local")]
    pub(crate) cluster_domain: String,
    #[command(flatten)]
    pub(crate) serving: super::serving::ServingArguments,
    /// Keep objects in etcd instead of the data directory: scheme://ip:port, comma separated
    #[arg(long, value_delimiter = ',')]
    pub(crate) etcd_servers: Vec<String>,
    /// With --etcd-servers: leave the objects that the data directory holds where they are, and serve those of etcd
    #[arg(long, requires = "etcd_servers")]
    pub(crate) ignore_local_objects: bool,
    /// The authority that signed etcd's certificates
    #[arg(long)]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Client certificate in PEM that the server presents to etcd
    #[arg(long, requires = "etcd_keyfile")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Private key in PEM of --etcd-certfile
    #[arg(long, requires = "etcd_certfile")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Interval between etcd compactions (for example 5m0s); 0s disables them
    #[arg(long, value_parser = duration, default_value = "5m0s")]
    pub(crate) etcd_compaction_interval: Duration,
    #[command(flatten)]
    pub(crate) encryption: super::encryption::EncryptionArguments,
    /// Interval between scrubs of the stored bytes, which find damage early; 0s disables them
    #[arg(long, value_parser = duration, default_value = "24h0m0s")]
    pub(crate) storage_scrub_interval: Duration,
    #[command(flatten)]
    pub(crate) bounds: super::bounds::BoundArguments,
    /// File of users with a bearer token each, read at the start: lines of token,user,uid,"group1,group2"
    #[arg(long)]
    pub(crate) token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) authentication: super::authentication::AuthenticationArguments,
    #[command(flatten)]
    pub(crate) authorization: super::authorization::AuthorizationArguments,
    /// File with keys in PEM, private or public, that verify service account tokens besides the signing key; repeatable
    #[arg(long)]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// File with the key that signs service account tokens: RSA, ECDSA P-256 or P-384; by default one is made and kept
    #[arg(long)]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// Issuer of service account tokens; repeatable: the first signs, tokens of all are accepted
    #[arg(long)]
    pub(crate) service_account_issuer: Vec<String>,
    /// URL of the keys of service account tokens in the discovery document; by default at the advertised address
    #[arg(long)]
    pub(crate) service_account_jwks_uri: Option<String>,
    /// Lifetime of service account tokens at most, from 1h0m0s on; 0s sets no bound
    #[arg(long, value_parser = duration, default_value = "0s")]
    pub(crate) service_account_max_token_expiration: Duration,
    /// Extend tokens that pods get without having them requested to a year, whatever their longest lifetime (the default); =false does not
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) service_account_extend_token_expiration: bool,
    /// Audiences of this server; by default its issuers
    #[arg(long, value_delimiter = ',')]
    pub(crate) api_audiences: Vec<String>,
    /// Store webhooks and policies that this server does not enforce yet; without it they are refused
    #[arg(long)]
    pub(crate) allow_unenforced: bool,
    /// Admission plugins that do not run, such as DenyServiceExternalIPs
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(ADMISSION_PLUGINS))]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// Admission plugins that run although they are off by default, such as AlwaysPullImages; all others run unless they are disabled
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(ADMISSION_PLUGINS))]
    pub(crate) enable_admission_plugins: Vec<String>,
    #[command(flatten)]
    pub(crate) api: super::api::ApiArguments,
    /// File with the configurations of admission plugins (AdmissionConfiguration)
    #[arg(long)]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) audit: super::audit::AuditArguments,
    /// Seats of requests that change nothing; with the seats of changes the sum that priority levels share
    #[arg(long, default_value_t = 400)]
    pub(crate) max_requests_inflight: usize,
    /// Seats of requests that change objects
    #[arg(long, default_value_t = 200)]
    pub(crate) max_mutating_requests_inflight: usize,
    /// Timeout of requests other than watches and streams (for example 1m0s)
    #[arg(long, value_parser = duration, default_value = "1m0s")]
    pub(crate) request_timeout: Duration,
    /// Minimum number of seconds after which a watch without timeoutSeconds ends; up to twice as long
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub(crate) min_request_timeout: u64,
    /// Fraction of the requests of HTTP/2 after which a client is sent a GOAWAY, so that it connects again, to another server behind a load balancer maybe; 0.02 at most
    #[arg(long, default_value_t = 0.0)]
    pub(crate) goaway_chance: f64,
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('-')
        .and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    parsed.ok_or_else(|| "give two ports, as in 30000-32767".to_owned())
}

impl ServerArguments {
    pub(crate) fn server_config(&self, paths: &Paths) -> anyhow::Result<ServerConfig> {
        let config = ServerConfig {
            listen: Some(SocketAddr::new(self.bind_address, self.secure_port)),
            advertise_address: self.advertise_address,
            cert_dir: Some(paths.pki()),
            tls_san: self.serving.tls_san.clone(),
            tls_cert_file: self.serving.tls_cert_file.clone(),
            tls_private_key_file: self.serving.tls_private_key_file.clone(),
            tls_sni_cert_keys: self.serving.tls_sni_cert_key.clone(),
            service_cluster_ip_range: self.service_cluster_ip_range,
            service_node_port_range: self.service_node_port_range,
            cluster_domain: self.cluster_domain.clone(),
            token_auth_file: self.token_auth_file.clone(),
            client_ca_file: self.authentication.client_ca_file.clone(),
            request_header: self.authentication.request_header(),
            authentication: self.authentication.options(),
            authorization: self.authorization.options(),
            service_account_key_files: self.service_account_key_file.clone(),
            service_account_signing_key_file: self.service_account_signing_key_file.clone(),
            service_account_issuers: self.service_account_issuer.clone(),
            service_account_jwks_uri: self.service_account_jwks_uri.clone(),
            service_account_max_token_expiration: self.service_account_max_token_expiration,
            service_account_extend_token_expiration: self.service_account_extend_token_expiration,
            api_audiences: self.api_audiences.clone(),
            events_per_namespace: self.bounds.events_per_namespace(),
            allow_unenforced: self.allow_unenforced,
            disable_admission_plugins: self.disable_admission_plugins.clone(),
            enable_admission_plugins: self.enable_admission_plugins.clone(),
            admission_control_config_file: self.admission_control_config_file.clone(),
            feature_gates: self.api.gates()?,
            runtime_config: self.api.versions()?,
            event_ttl: self.api.event_ttl(),
            tls: self.serving.tls(),
            audit_log: self.audit.log(),
            audit_webhook: self.audit.webhook(),
            audit_policy_file: self.audit.audit_policy_file.clone(),
            max_requests_inflight: self.max_requests_inflight,
            max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            request_timeout: self.request_timeout,
            min_request_timeout: Duration::from_secs(self.min_request_timeout),
            goaway_chance: self.goaway_chance,
            flags: super::flags::shown("server"),
            ..ServerConfig::default()
        };
        config.check()?;
        self.controllers.check()?;
        self.election.check()?;
        let (pods, services) = (self.controllers.cluster_cidr, self.service_cluster_ip_range);
        if pods.contains(&services.network()) || services.contains(&pods.network()) {
            bail!(
                "--cluster-cidr {pods} and --service-cluster-ip-range {services} overlap; give them separate ranges"
            );
        }
        let folder = &self.data_dir;
        node_sys::fs::make_private_folder(folder).with_context(|| {
            format!(
                "creating --data-dir {} (choose one you may write)",
                folder.display()
            )
        })?;
        Ok(config)
    }

    pub(crate) fn quota(&self) -> Quota {
        self.bounds.quota(node_sys::machine::memory_limit_bytes())
    }

    /// The etcd backend, when the flags request it.
    pub(crate) async fn etcd(
        &self,
        paths: &Paths,
        runtime: &Runtime,
        encryption: Option<Arc<Encryption>>,
    ) -> anyhow::Result<Option<Arc<dyn Storage>>> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        if !self.ignore_local_objects {
            self.holds_no_objects(paths)?;
        }
        let read = |flag: &str, path: &Option<PathBuf>| {
            let path: Option<&Path> = path.as_deref();
            path.map(|path| std::fs::read(path).with_context(|| format!("{flag} {}", path.display())))
                .transpose()
        };
        let certificate = read("--etcd-certfile", &self.etcd_certfile)?;
        let key = read("--etcd-keyfile", &self.etcd_keyfile)?;
        let options = EtcdOptions {
            endpoints: self.etcd_servers.clone(),
            ca: read("--etcd-cafile", &self.etcd_cafile)?,
            identity: certificate.zip(key),
            retention: self.etcd_compaction_interval,
            encryption,
            quota: self.quota(),
            ..EtcdOptions::default()
        };
        let silent = || {
            format!(
                "--etcd-servers {}: nothing answers there as etcd would; start it, or check address and certificates",
                without_credentials(&self.etcd_servers.join(","))
            )
        };
        let storage = EtcdStorage::connect(runtime, &options)
            .await
            .with_context(silent)?;
        let answered = runtime.timeout(ETCD_PATIENCE, storage.current_revision()).await;
        let answered = answered.with_context(silent)?;
        answered
            .map_err(|error| anyhow::anyhow!(error.chain()))
            .with_context(silent)?;
        Ok(Some(Arc::new(storage)))
    }

    /// Refuses a data directory whose objects would be served no more.
    fn holds_no_objects(&self, paths: &Paths) -> anyhow::Result<()> {
        let dir = self.data_dir.display();
        let held = match OfflineState::open(&RealDisk::new(), &paths.storage()) {
            Ok(state) => state.entries().count().to_string(),
            Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => format!("unreadable ({})", error.chain()),
        };
        if held == "0" {
            return Ok(());
        }
        bail!(
            "--data-dir {dir} holds {held} objects, which a server with --etcd-servers does not serve: move them with \
             `knarr storage backup FILE --format etcd --data-dir {dir}` and `etcdutl snapshot restore FILE`, or leave \
             them where they are with --ignore-local-objects"
        )
    }
}
