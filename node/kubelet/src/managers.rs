//! Loops beside the pod workers, in start order. A new feature of the node is one row here.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use machinery_runtime::Runtime;
use node_sys::kernel_log::KernelLog;
use node_sys::logind::Logind;
use node_sys::vitals::Vitals;

use crate::config::KubeletConfig;
use crate::node::facts::NodeFacts;
use crate::node::registration::Registration;
use crate::node::status::StatusKeeper;
use crate::plugins::sockets::PluginSockets;
use crate::pods::source::Pods;
use crate::pods::worker::WorkerContext;
use crate::{
    containers, csi, devices, dra, eviction, images, logs, node, oom, plugins, pod_resources,
    resource_managers, shutdown, static_pods,
};

/// Context of a manager.
#[derive(Clone)]
pub(crate) struct ManagerContext {
    /// Clock and tasks.
    pub(crate) runtime: Runtime,
    /// The API, as this node.
    pub(crate) client: Client,
    /// The node's configuration.
    pub(crate) config: Arc<KubeletConfig>,
    /// Facts of the machine.
    pub(crate) facts: NodeFacts,
    /// The Node object, once it is registered.
    pub(crate) registration: Registration,
    /// The workers.
    pub(crate) pods: Arc<Pods>,
    /// Context of the pod workers.
    pub(crate) workers: Arc<WorkerContext>,
    /// Resources that the machine has left.
    pub(crate) vitals: Arc<dyn Vitals>,
    /// News of the machine's way down.
    pub(crate) logind: Arc<dyn Logind>,
    /// Records of the kernel.
    pub(crate) kernel_log: Arc<dyn KernelLog>,
    /// Sockets for other programs of the machine.
    pub(crate) sockets: Arc<dyn PluginSockets>,
}

impl std::fmt::Debug for ManagerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagerContext")
            .field("node_name", &self.config.node_name)
            .finish_non_exhaustive()
    }
}

impl ManagerContext {
    /// Waits until the node is registered, and returns the object as it was then.
    pub(crate) async fn registered(&self) -> Arc<Node> {
        self.registration.registered().await
    }
}

/// A manager: its name and how it runs until the agent ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManagerRow {
    /// Also its task's name.
    pub(crate) name: &'static str,
    /// Runs it.
    pub(crate) run: fn(ManagerContext) -> BoxFuture<'static, ()>,
}

/// All of them, in start order. The servers follow ([`crate::server`]). Those that speak of the node wait for its
/// registration, and no other does.
pub(crate) fn rows() -> [ManagerRow; 26] {
    [
        ManagerRow {
            name: "component events",
            run: |context| Box::pin(node::components::record_failures(context)),
        },
        ManagerRow {
            name: "node status",
            run: |context| {
                Box::pin(async move {
                    let node = context.registered().await;
                    status_keeper(&context).run((*node).clone()).await;
                })
            },
        },
        ManagerRow {
            name: "node lease",
            run: |context| {
                Box::pin(async move {
                    let node = context.registered().await;
                    node::lease::renew(context.runtime, context.client, (*node).clone()).await;
                })
            },
        },
        ManagerRow {
            name: "node watch",
            run: |context| Box::pin(node::schedulable::watch(context)),
        },
        ManagerRow {
            name: "device plugins",
            run: |context| Box::pin(devices::serve(context)),
        },
        ManagerRow {
            name: "plugins",
            run: |context| Box::pin(plugins::run(context)),
        },
        ManagerRow {
            name: "devices of claims",
            run: |context| Box::pin(dra::run(context)),
        },
        ManagerRow {
            name: "staged volumes",
            run: |context| Box::pin(csi::take_away_unused(context)),
        },
        ManagerRow {
            name: "usage of volumes",
            run: |context| Box::pin(csi::follow_usage(context)),
        },
        ManagerRow {
            name: "growth of volumes",
            run: |context| Box::pin(csi::follow_claims(context)),
        },
        ManagerRow {
            name: "processors of containers",
            run: |context| Box::pin(resource_managers::reconcile::run(context)),
        },
        ManagerRow {
            name: "pod resources",
            run: |context| Box::pin(pod_resources::serve(context)),
        },
        ManagerRow {
            name: "host ports",
            run: |context| Box::pin(context.workers.control.host_ports.clone().run()),
        },
        ManagerRow {
            name: "runtime events",
            run: |context| Box::pin(context.pods.follow_runtime()),
        },
        ManagerRow {
            name: "pod watch",
            run: |context| Box::pin(context.pods.follow_api(context.config.node_name.clone())),
        },
        ManagerRow {
            name: "static pods",
            run: |context| Box::pin(static_pods::run(context)),
        },
        ManagerRow {
            name: "saved pods",
            run: |context| Box::pin(context.pods.go_on_with_saved()),
        },
        ManagerRow {
            name: "relist",
            run: |context| Box::pin(context.pods.relist()),
        },
        ManagerRow {
            name: "class weights",
            run: |context| Box::pin(containers::tiers::maintain_weights(context)),
        },
        ManagerRow {
            name: "pod storage",
            run: |context| Box::pin(eviction::storage_looks::run(context)),
        },
        ManagerRow {
            name: "eviction",
            run: |context| Box::pin(eviction::manager::run(context)),
        },
        ManagerRow {
            name: "oom events",
            run: |context| Box::pin(oom::watcher::run(context)),
        },
        ManagerRow {
            name: "node shutdown",
            run: |context| Box::pin(shutdown::manager::run(context)),
        },
        ManagerRow {
            name: "logs of evicted pods",
            run: |context| Box::pin(eviction::reclaim::collect_logs(context)),
        },
        ManagerRow {
            name: "image collection",
            run: |context| Box::pin(images::collect_images(context)),
        },
        ManagerRow {
            name: "log rotation",
            run: |context| {
                let cri = context.workers.control.cri.clone();
                Box::pin(logs::rotation::rotate_logs(context.runtime, cri, context.config))
            },
        },
    ]
}

fn status_keeper(context: &ManagerContext) -> StatusKeeper {
    StatusKeeper {
        runtime: context.runtime.clone(),
        client: context.client.clone(),
        cri: context.workers.control.cri.clone(),
        events: context.workers.events.clone(),
        config: context.config.clone(),
        facts: context.facts.clone(),
        pressure: context.workers.pressure.clone(),
        shutting_down: context.workers.shutting_down.clone(),
        devices: context.workers.devices.clone(),
        csi: context.workers.csi.clone(),
    }
}
