//! The services whose addresses containers learn from their environment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use kube::api::Api;
use machinery_runtime::{Runtime, Watched};
use parking_lot::Mutex;

use super::watch::{Change, follow};
use crate::pods::{namespace, spec, uid};

/// How long a container waits for the services to be known.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits where the agent before this one has left what it knew.
const SYNC_TIMEOUT_REMEMBERED: Duration = Duration::from_secs(1);
/// The namespace and name of the API server's own service, which every pod learns about.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Of a service only what the variables say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAddress {
    name: String,
    address: String,
    ports: Vec<(Option<String>, String, i32)>,
}

/// All services of the cluster, in short.
#[derive(Debug, Clone)]
pub struct Services {
    runtime: Runtime,
    table: Arc<Mutex<HashMap<(String, String), ServiceAddress>>>,
    synced: Arc<Watched<bool>>,
    /// Variables of pods as the agent before this one knew them, by uid.
    remembered: Arc<Mutex<HashMap<String, BTreeMap<String, String>>>>,
}

impl Services {
    /// Starts to follow them.
    pub fn start(runtime: &Runtime, client: Client) -> Self {
        let table: Arc<Mutex<HashMap<(String, String), ServiceAddress>>> = Arc::default();
        let synced = Arc::new(Watched::new(false));
        let (services, handle, known) = (table.clone(), runtime.clone(), synced.clone());
        let watch = move || {
            let (services, handle, known) = (services.clone(), handle.clone(), known.clone());
            let api = Api::all(client.clone());
            let tell = move |change: Change<Service>| {
                let mut services = services.lock();
                match change {
                    Change::All(found) => {
                        *services = found.iter().filter_map(entry).collect();
                        known.replace(true);
                    }
                    Change::Set(service) => {
                        services.remove(&key(&service));
                        services.extend(entry(&service));
                    }
                    Change::Gone(service) => {
                        services.remove(&key(&service));
                    }
                    Change::Failed(_) => {}
                }
            };
            async move { follow(&handle, api, None, tell).await }
        };
        runtime.keep("service watch", watch).detach();
        Self {
            runtime: runtime.clone(),
            table,
            synced,
            remembered: Arc::default(),
        }
    }

    /// The variables of a pod's containers. None where the services are not known, now or from the agent before this one:
    /// what a container learns at its start stays with it.
    pub async fn variables(&self, pod: &Pod) -> Option<BTreeMap<String, String>> {
        let remembered = self.remembered.lock().contains_key(uid(pod));
        let patience = match remembered {
            true => SYNC_TIMEOUT_REMEMBERED,
            false => SYNC_TIMEOUT,
        };
        let synced = self.synced.wait_for(|synced| *synced);
        // Without them what is remembered counts.
        let _ = self.runtime.timeout(patience, synced).await;
        self.known(pod)
    }

    /// The variables of a pod as far as they are known now: of its namespace's services where it wants them, and of the
    /// API server's.
    pub fn known(&self, pod: &Pod) -> Option<BTreeMap<String, String>> {
        if !self.synced.get() {
            return self.remembered.lock().get(uid(pod)).cloned();
        }
        let linked = spec(pod).enable_service_links != Some(false);
        let table = self.table.lock();
        let mut chosen: BTreeMap<&str, &ServiceAddress> = BTreeMap::new();
        for ((found, name), service) in table.iter() {
            let is_master = (found.as_str(), name.as_str()) == MASTER;
            let local = linked && found == namespace(pod);
            if local || (is_master && !chosen.contains_key(name.as_str())) {
                chosen.insert(name, service);
            }
        }
        Some(chosen.values().flat_map(|service| service.variables()).collect())
    }

    /// Takes over what the agent before this one knew for a pod.
    pub fn remember(&self, uid: &str, variables: BTreeMap<String, String>) {
        self.remembered.lock().insert(uid.to_owned(), variables);
    }

    /// The pod is gone.
    pub fn forget_pod(&self, uid: &str) {
        self.remembered.lock().remove(uid);
    }
}

fn key(service: &Service) -> (String, String) {
    let metadata = &service.metadata;
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

fn entry(service: &Service) -> Option<((String, String), ServiceAddress)> {
    let spec = service.spec.as_ref()?;
    let address = spec
        .cluster_ip
        .clone()
        .filter(|address| !address.is_empty() && address != "None")?;
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        (
            port.name.clone(),
            port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port.port,
        )
    };
    let ports = spec.ports.iter().flatten().map(port).collect();
    let key = key(service);
    let name = key.1.clone();
    Some((key, ServiceAddress { name, address, ports }))
}

impl ServiceAddress {
    /// `X_SERVICE_HOST` and the older link variables.
    fn variables(&self) -> Vec<(String, String)> {
        let prefix = variable_name(&self.name);
        let address = &self.address;
        let mut out = vec![(format!("{prefix}_SERVICE_HOST"), address.clone())];
        if let Some((_, _, port)) = self.ports.first() {
            out.push((format!("{prefix}_SERVICE_PORT"), port.to_string()));
        }
        for (name, _, port) in &self.ports {
            if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
                out.push((
                    format!("{prefix}_SERVICE_PORT_{}", variable_name(name)),
                    port.to_string(),
                ));
            }
        }
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.clone()
        };
        for (at, (_, protocol, port)) in self.ports.iter().enumerate() {
            let lower = protocol.to_lowercase();
            let url = format!("{lower}://{host}:{port}");
            if at == 0 {
                out.push((format!("{prefix}_PORT"), url.clone()));
            }
            let one = format!("{prefix}_PORT_{port}_{}", protocol.to_uppercase());
            out.push((one.clone(), url));
            out.push((format!("{one}_PROTO"), lower));
            out.push((format!("{one}_PORT"), port.to_string()));
            out.push((format!("{one}_ADDR"), address.clone()));
        }
        out
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_variables_match_upstream() {
        let ports = vec![(Some("http".to_string()), "TCP".to_string(), 80)];
        let service = ServiceAddress {
            name: "my-web".into(),
            address: "10.96.0.7".into(),
            ports,
        };
        let variables: BTreeMap<String, String> = service.variables().into_iter().collect();
        let expected = [
            ("MY_WEB_PORT", "tcp://10.96.0.7:80"),
            ("MY_WEB_PORT_80_TCP", "tcp://10.96.0.7:80"),
            ("MY_WEB_PORT_80_TCP_ADDR", "10.96.0.7"),
            ("MY_WEB_PORT_80_TCP_PORT", "80"),
            ("MY_WEB_PORT_80_TCP_PROTO", "tcp"),
            ("MY_WEB_SERVICE_HOST", "10.96.0.7"),
            ("MY_WEB_SERVICE_PORT", "80"),
            ("MY_WEB_SERVICE_PORT_HTTP", "80"),
        ];
        let expected = expected.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(variables, BTreeMap::from(expected));
    }
}
