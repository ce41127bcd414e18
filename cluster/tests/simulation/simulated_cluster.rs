//! A cluster behind faults on a disk that can lose its power, and a client that is behind none.

use crate::disk_snapshot::{Image, open};
use apiserver_storage::LogStorage;
use cluster::{Cluster, Faults, LeaderElection, Rates, Request, Selection};
use controllers_manager::Config;
use k8s_openapi::Resource;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch, Propagation};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, SimDisk};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Components of a world.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) controllers: &'static [&'static str],
    pub(crate) scheduler: bool,
    pub(crate) two_managers: bool,
    pub(crate) rates: Rates,
    pub(crate) config: Config,
}

/// Longest delay of each message of a slow manager.
const SLOWNESS: Duration = Duration::from_secs(9);

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    /// Faults of the second manager.
    rival: Faults,
    /// Time at which the components last began.
    pub(crate) started: Duration,
    setting: Setting,
    cluster: Option<Cluster>,
    disk: Arc<SimDisk>,
    pub(crate) storage: Arc<LogStorage>,
}

impl World {
    pub(crate) async fn new(runtime: Runtime, disk: Arc<SimDisk>, setting: Setting) -> Self {
        Image::get().write_to(&*disk);
        let faults = Faults::new(setting.rates);
        let rival = faults.beside(setting.rates);
        let (cluster, storage) = start(&runtime, &faults, &rival, &setting).await;
        Self {
            rival,
            started: runtime.monotonic(),
            client: cluster.admin(),
            cluster: Some(cluster),
            runtime,
            faults,
            setting,
            disk,
            storage,
        }
    }

    /// The components die and start anew.
    pub(crate) async fn restart(&mut self) {
        let pause = Duration::from_millis(50 + self.dice(5_000));
        let cluster = self.cluster.as_mut().unwrap();
        cluster.restart_components(pause).await;
        self.started = self.runtime.monotonic();
    }

    /// One of the managers becomes slow, or both are as fast as they were.
    pub(crate) fn slow_down(&self) {
        let (rates, slow) = (
            self.setting.rates,
            Rates {
                delay: 1_000,
                longest_delay: SLOWNESS,
                hang: 50,
                ..self.setting.rates
            },
        );
        let slowed = self.dice(3);
        self.faults.set(if slowed == 1 { slow } else { rates });
        self.rival.set(if slowed == 2 { slow } else { rates });
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        self.faults.set(Rates::NONE);
        self.rival.set(Rates::NONE);
    }

    /// Every mutation that the server answered, but for those that only say who leads.
    pub(crate) fn mutations(&self) -> Vec<Request> {
        let election =
            |own: &Request| own.path.contains("/leases/kube-") || own.path.ends_with("/kube-system/leases");
        let mut all = self.faults.mutations();
        all.retain(|own| !election(own));
        all
    }

    /// The power goes, and comes back: the disk has lost what was not synced, and everything restarts.
    pub(crate) async fn lose_power(&mut self) {
        drop(self.cluster.take());
        self.disk.crash();
        self.runtime
            .sleep(Duration::from_millis(1 + self.dice(5_000)))
            .await;
        let (cluster, storage) = start(&self.runtime, &self.faults, &self.rival, &self.setting).await;
        self.started = self.runtime.monotonic();
        self.client = cluster.admin();
        (self.cluster, self.storage) = (Some(cluster), storage);
    }

    /// A number below `sides`.
    pub(crate) fn dice(&self, sides: u64) -> u64 {
        self.runtime.random_u64() % sides
    }

    /// True once in `sides` times.
    pub(crate) fn once_in(&self, sides: u64) -> bool {
        self.dice(sides) == 0
    }

    /// One of these, where there are any.
    pub(crate) fn pick<T>(&self, mut from: Vec<T>) -> Option<T> {
        let sides = from.len() as u64;
        (sides > 0).then(|| from.swap_remove(usize::try_from(self.dice(sides)).unwrap()))
    }

    /// A time as objects write it.
    pub(crate) fn now(&self) -> String {
        self.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Creates an object of `metadata.namespace`, `default` where that is missing. The request may be refused.
    pub(crate) async fn create<K: Resource<Scope: 'static>>(&self, object: Value) -> Result<(), ClientError> {
        let mut object = object;
        object["apiVersion"] = json!(K::API_VERSION);
        object["kind"] = json!(K::KIND);
        let resource = ApiResource::of::<K>();
        let namespace = if resource.namespaced {
            object["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default")
                .to_owned()
        } else {
            String::new()
        };
        self.client.create(&resource, &namespace, &object).await.map(drop)
    }

    /// Changes an object; one that is gone stays gone.
    pub(crate) async fn patch<K: Resource<Scope: 'static>>(&self, key: &ObjectKey, body: Value) {
        self.send_patch::<K>(key, "", &body).await;
    }

    /// Changes an object's status; one that is gone stays gone.
    pub(crate) async fn patch_status<K: Resource<Scope: 'static>>(&self, key: &ObjectKey, status: Value) {
        self.send_patch::<K>(key, "status", &json!({"status": status}))
            .await;
    }

    /// Changes an object's size, as `kubectl scale` does.
    pub(crate) async fn scale<K: Resource<Scope: 'static>>(&self, key: &ObjectKey, replicas: u64) {
        self.send_patch::<K>(key, "scale", &json!({"spec": {"replicas": replicas}}))
            .await;
    }

    async fn send_patch<K: Resource<Scope: 'static>>(
        &self,
        key: &ObjectKey,
        subresource: &str,
        body: &Value,
    ) {
        let resource = ApiResource::of::<K>();
        match self
            .client
            .patch(&resource, key, subresource, &Patch::Merge, body)
            .await
        {
            Err(error) if !error.is_not_found() => panic!("patching {key} with {body}: {error}"),
            _ => {}
        }
    }

    /// Deletes an object; one that is gone stays gone.
    pub(crate) async fn delete<K: Resource<Scope: 'static>>(&self, key: &ObjectKey) {
        self.delete_with::<K>(key, DeleteOptions::default()).await;
    }

    /// Deletes an object in one of the three ways.
    pub(crate) async fn delete_by<K: Resource<Scope: 'static>>(&self, key: &ObjectKey, how: Propagation) {
        let options = DeleteOptions {
            propagation: Some(how),
            ..DeleteOptions::default()
        };
        self.delete_with::<K>(key, options).await;
    }

    pub(crate) async fn delete_with<K: Resource<Scope: 'static>>(
        &self,
        key: &ObjectKey,
        options: DeleteOptions,
    ) {
        match self.client.delete(&ApiResource::of::<K>(), key, &options).await {
            // A namespace that is going already answers with a conflict.
            Err(error) if !error.is_not_found() && !error.is_conflict() => panic!("deleting {key}: {error}"),
            _ => {}
        }
    }
}

async fn start(
    runtime: &Runtime,
    faults: &Faults,
    rival: &Faults,
    setting: &Setting,
) -> (Cluster, Arc<LogStorage>) {
    let storage = open(runtime).await;
    let names = setting
        .controllers
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let config = setting.config.clone();
    let builder = Cluster::builder()
        .runtime(runtime.clone())
        .storage(storage.clone())
        .keys(Image::get().keys.clone())
        .controllers(Selection::Listed(names))
        .controller_config(move |own| *own = config)
        .faults(faults.clone());
    let builder = if setting.scheduler {
        builder.scheduler()
    } else {
        builder
    };
    let builder = if setting.two_managers {
        let election = LeaderElection::new;
        builder
            .leader_election(Some(election("one")))
            .rival(election("other"), rival.clone())
    } else {
        builder
    };
    (builder.start().await.unwrap(), storage)
}
