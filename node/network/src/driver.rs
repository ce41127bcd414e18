//! Watches nodes and writes the plan.

use crate::config::NetworkConfig;
use crate::host;
use crate::model::NodeView;
use crate::plan::{CONFLIST, Plan, plan, route_changes};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use machinery_client::{Client, Informer, Informers};
use machinery_runtime::{Runtime, TaskHandle};
use node_sys::{CommandSpec, Exec, ExecError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Waits after failures: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Something was not written.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("writing {path}")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("changing rules or routes: {0}")]
    Program(#[from] ExecError),
}

/// Starts the pod network; it runs until its scope ends and leaves everything in place, so that pods go on.
pub fn start(config: NetworkConfig, client: Client, exec: Arc<dyn Exec>, runtime: Runtime) -> TaskHandle<()> {
    let inside = runtime.clone();
    let informers = Informers::new(client.with_user_agent("knarr-network"), runtime.clone());
    runtime.spawn("pod network", run(config, informers, exec, inside))
}

fn run(
    config: NetworkConfig,
    informers: Informers,
    exec: Arc<dyn Exec>,
    runtime: Runtime,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let nodes: Informer<NodeView> = informers.of::<Node, _>();
        nodes.synced().await;
        let mut dirty = nodes.dirty_keys();
        let mut network = Network {
            config,
            exec,
            written: Plan::default(),
        };
        host::prepare(Path::new("/proc/sys"), &network.config.host_settings);
        loop {
            dirty.next_batch().await;
            let mut wait = RETRY.0;
            // The nodes are looked at again in every attempt.
            while let Err(error) = network.write(&wanted(&network.config, &nodes)).await {
                tracing::warn!(%error, cause = std::error::Error::source(&error), "the pod network was not written");
                runtime.sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    })
}

fn wanted(config: &NetworkConfig, nodes: &Informer<NodeView>) -> Plan {
    let all = nodes.list();
    plan(config, all.iter().map(|node| (node.name(), &node.projection)))
}

struct Network {
    config: NetworkConfig,
    exec: Arc<dyn Exec>,
    written: Plan,
}

impl Network {
    /// Rules and routes before the conflist: once that is there, pods start.
    async fn write(&mut self, wanted: &Plan) -> Result<(), NetworkError> {
        if let Some(rules) = wanted
            .masquerade
            .as_ref()
            .filter(|_| wanted.masquerade != self.written.masquerade)
        {
            self.run(CommandSpec::new("nft").args(["-f", "-"]).stdin(rules.as_str()))
                .await?;
            self.written.masquerade.clone_from(&wanted.masquerade);
        }
        for arguments in route_changes(&self.written.routes, &wanted.routes) {
            let gone = arguments[1] == "delete";
            match self.run(CommandSpec::new("ip").args(arguments)).await {
                Err(error) if !gone => return Err(error),
                _ => {}
            }
        }
        self.written.routes.clone_from(&wanted.routes);
        if let Some(conflist) = wanted
            .conflist
            .as_ref()
            .filter(|_| wanted.conflist != self.written.conflist)
        {
            let folder = &self.config.cni_config_dir;
            let path = folder.join(CONFLIST);
            let written = std::fs::create_dir_all(folder)
                .and_then(|()| node_sys::fs::write_atomically(&path, conflist.as_bytes(), 0o644));
            written.map_err(|source| NetworkError::Write {
                path: path.display().to_string(),
                source,
            })?;
            self.written.conflist.clone_from(&wanted.conflist);
            tracing::info!(path = %path.display(), "pods can have addresses");
        }
        Ok(())
    }

    async fn run(&self, spec: CommandSpec) -> Result<(), NetworkError> {
        let program = spec.program.clone();
        self.exec.run(spec).await?.success(&program)?;
        Ok(())
    }
}
