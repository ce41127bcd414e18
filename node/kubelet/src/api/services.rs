//! The services whose addresses containers learn from their environment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_meta::ObjectHeader;
use machinery_runtime::{Runtime, Watched};
use parking_lot::Mutex;

use crate::pods::{is_static, namespace, spec, uid};

/// Longest wait of a container for the list of services.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait where an earlier agent has saved its list of services.
const SYNC_TIMEOUT_REMEMBERED: Duration = Duration::from_secs(1);
/// The namespace and name of the API server's own service, which every pod learns about.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Variables of the services of one pod together: libc's `setenv`, by which `runc init` sets them, looks through all that are
/// there, so that 8,192 take it a third of a second and 100,000 a minute.
const VARIABLES_MAX: usize = 8_192;
/// Their bytes: half of what Linux gives to arguments and environment under the usual limit of the stack.
const VARIABLE_BYTES_MAX: usize = 1 << 20;
/// Bytes that Linux counts for a variable besides its text: `=`, the NUL and the pointer.
const VARIABLE_OVERHEAD_BYTES: usize = 1 + 1 + 8;
/// Services without room that are named.
const OMITTED_NAMED_MAX: usize = 4;

/// Variables of a pod's containers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ServiceVariables {
    /// Values by name.
    pub(crate) values: BTreeMap<String, String>,
    /// Names of services whose variables had no room, a few of them.
    omitted: Vec<String>,
}

impl ServiceVariables {
    /// The variables of services as far as there is room: a service has all of its own or none, earlier services go before
    /// later ones.
    fn of<'a>(services: impl Iterator<Item = &'a ServiceAddress>) -> Self {
        let (mut all, mut count, mut bytes) = (Self::default(), 0, 0);
        for service in services {
            let own = service.variables_within(VARIABLES_MAX - count).filter(|own| {
                let of_service: usize = own.iter().map(room_of).sum();
                let fits = bytes + of_service <= VARIABLE_BYTES_MAX;
                if fits {
                    bytes += of_service;
                }
                fits
            });
            match own {
                Some(own) => {
                    count += own.len();
                    all.values.extend(own);
                }
                None if all.omitted.len() <= OMITTED_NAMED_MAX => all.omitted.push(service.name.clone()),
                None => {}
            }
        }
        all
    }

    /// The words of the event where services had no room, in the form of upstream's `DNSConfigForming`.
    pub(crate) fn problem(&self) -> Option<String> {
        let named = self.omitted.iter().take(OMITTED_NAMED_MAX);
        let mut names = named.map(String::as_str).collect::<Vec<_>>().join(", ");
        if self.omitted.is_empty() {
            return None;
        }
        if self.omitted.len() > OMITTED_NAMED_MAX {
            names.push_str(" and others");
        }
        Some(format!(
            "Service variable limits were exceeded ({VARIABLES_MAX} variables, {VARIABLE_BYTES_MAX} bytes), the variables of some \
             services have been omitted: {names}. Containers find services by DNS; enableServiceLinks: false leaves the \
             variables of all but the API server's out"
        ))
    }
}

fn room_of((name, value): &(String, String)) -> usize {
    name.len() + value.len() + VARIABLE_OVERHEAD_BYTES
}

/// Of a service only what the variables say, and when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    created: Option<Timestamp>,
    name: String,
    address: String,
    ports: Vec<(Option<String>, String, i32)>,
}

/// Services by namespace and name.
type Table = HashMap<(String, String), ServiceAddress>;

/// All services of the cluster, in short.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    runtime: Runtime,
    table: Arc<Mutex<Table>>,
    synced: Arc<Watched<bool>>,
    /// Variables of pods as the agent before this one knew them, by uid.
    remembered: Arc<Mutex<HashMap<String, BTreeMap<String, String>>>>,
}

impl Services {
    /// Starts to follow them.
    pub(crate) fn start(runtime: &Runtime, client: Client) -> Self {
        let table: Arc<Mutex<Table>> = Arc::default();
        let synced = Arc::new(Watched::new(false));
        let (services, known) = (table.clone(), synced.clone());
        let client = super::client(&client, runtime);
        let watch = move || {
            let (services, known, client) = (services.clone(), known.clone(), client.clone());
            let apply = move |change: TypedChange<Service>| {
                let is_all = matches!(change, TypedChange::All { .. });
                take_in(&mut services.lock(), change);
                if is_all {
                    known.replace(true);
                }
            };
            async move { follow(&client, ListWatch::of::<Service>(), apply).await }
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
    pub(crate) async fn variables(&self, pod: &Pod) -> Option<ServiceVariables> {
        if is_static(pod) {
            // It runs without an API server, and may be one.
            return self.known(pod).or_else(|| Some(ServiceVariables::default()));
        }
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
    pub(crate) fn known(&self, pod: &Pod) -> Option<ServiceVariables> {
        if !self.synced.get() {
            let values = self.remembered.lock().get(uid(pod)).cloned()?;
            let omitted = Vec::new();
            return Some(ServiceVariables { values, omitted });
        }
        let linked = spec(pod).enable_service_links != Some(false);
        let table = self.table.lock();
        let mut chosen: BTreeMap<&str, (bool, &ServiceAddress)> = BTreeMap::new();
        for ((found, name), service) in table.iter() {
            let is_master = (found.as_str(), name.as_str()) == MASTER;
            let local = linked && found == namespace(pod);
            if local || (is_master && !chosen.contains_key(name.as_str())) {
                chosen.insert(name, (is_master, service));
            }
        }
        let mut ordered: Vec<_> = chosen.into_values().collect();
        ordered.sort_by_key(|(is_master, service)| (!is_master, service.created, &service.name));
        Some(ServiceVariables::of(
            ordered.into_iter().map(|(_, service)| service),
        ))
    }

    /// Takes over what the agent before this one knew for a pod.
    pub(crate) fn remember(&self, uid: &str, variables: BTreeMap<String, String>) {
        self.remembered.lock().insert(uid.to_owned(), variables);
    }

    /// The pod is gone.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.remembered.lock().remove(uid);
    }
}

fn take_in(services: &mut Table, change: TypedChange<Service>) {
    match change {
        TypedChange::All { objects, unread } => {
            let unread: HashSet<_> = unread.iter().map(key_of).collect();
            services.retain(|key, _| unread.contains(key));
            services.extend(objects.iter().filter_map(entry));
        }
        TypedChange::Set(service) => {
            services.remove(&key(&service));
            services.extend(entry(&service));
        }
        TypedChange::Gone(header) => {
            services.remove(&key_of(&header));
        }
        TypedChange::Unread(_) | TypedChange::Failed(_) => {}
    }
}

fn key_of(header: &ObjectHeader) -> (String, String) {
    (header.key.namespace.to_string(), header.key.name.to_string())
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
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let service = ServiceAddress {
        created,
        name,
        address,
        ports,
    };
    Some((key, service))
}

impl ServiceAddress {
    /// Its variables, if there are no more than that.
    fn variables_within(&self, most: usize) -> Option<Vec<(String, String)>> {
        let is_named =
            |port: &&(Option<String>, String, i32)| port.0.as_ref().is_some_and(|name| !name.is_empty());
        let named = self.ports.iter().filter(is_named).count();
        let of_first = if self.ports.is_empty() { 0 } else { 2 };
        let count = 1 + of_first + named + 4 * self.ports.len();
        (count <= most).then(|| self.variables())
    }

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

    fn service(name: &str, ports: std::ops::Range<i32>) -> ServiceAddress {
        ServiceAddress {
            created: None,
            name: name.into(),
            address: "10.96.0.7".into(),
            ports: ports.map(|port| (None, "TCP".to_owned(), port)).collect(),
        }
    }

    #[test]
    fn service_variables_are_bounded_and_whole_services_left_out() {
        let (first, huge, last) = (
            service("first", 1..2),
            service("huge", 1..20_001),
            service("last", 1..1_500),
        );
        let chosen = ServiceVariables::of([&first, &huge, &last].into_iter());
        assert!(chosen.values.contains_key("FIRST_SERVICE_HOST"));
        assert!(
            chosen.values.contains_key("LAST_PORT_1499_TCP_ADDR"),
            "it has room behind one that has none"
        );
        assert!(!chosen.values.keys().any(|name| name.starts_with("HUGE")));
        let problem = chosen.problem().unwrap();
        assert!(problem.contains("omitted: huge. "), "{problem}");
        assert_eq!(ServiceVariables::of([&first].into_iter()).problem(), None);
        let many: Vec<ServiceAddress> = (0..10_000)
            .map(|number| service(&format!("{number}-{}", "n".repeat(50)), 1..2))
            .collect();
        let chosen = ServiceVariables::of(many.iter());
        let bytes: usize = chosen.values.clone().into_iter().map(|own| room_of(&own)).sum();
        assert!(
            bytes <= VARIABLE_BYTES_MAX && bytes > VARIABLE_BYTES_MAX / 2,
            "{bytes}"
        );
        assert!(chosen.values.len() <= VARIABLES_MAX);
        assert!(chosen.problem().unwrap().contains(" and others. "));
        let all = service("all", 1..3);
        assert_eq!(
            all.variables_within(usize::MAX).map(|own| own.len()),
            Some(all.variables().len())
        );
        assert_eq!(all.variables_within(all.variables().len() - 1), None);
    }

    #[test]
    fn service_that_cannot_be_decoded_stays_as_it_was_known() {
        let service = |name: &str| -> Service {
            let metadata = serde_json::json!({"name": name, "namespace": "n"});
            let spec = serde_json::json!({"clusterIP": "10.96.0.7"});
            serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let header = |name: &str| ObjectHeader {
            key: machinery_meta::ObjectKey::new("n", name),
            ..ObjectHeader::default()
        };
        let mut table = Table::new();
        let mut names_after = |change| {
            take_in(&mut table, change);
            let mut names: Vec<String> = table.keys().map(|(_, name)| name.clone()).collect();
            names.sort();
            names
        };
        let all = |objects, unread| TypedChange::All { objects, unread };
        let known = vec![service("a"), service("b")];
        assert_eq!(names_after(all(known, Vec::new())), ["a", "b"]);
        let unread = vec![header("a"), header("new")];
        assert_eq!(names_after(all(vec![service("c")], unread)), ["a", "c"]);
        assert_eq!(names_after(TypedChange::Unread(header("c"))), ["a", "c"]);
        assert_eq!(names_after(TypedChange::Gone(header("a"))), ["c"]);
    }

    #[test]
    fn service_variables_match_upstream() {
        let ports = vec![(Some("http".to_string()), "TCP".to_string(), 80)];
        let service = ServiceAddress {
            ports,
            ..service("my-web", 0..0)
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
