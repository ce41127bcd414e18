//! Making the Node object, or taking it over, beside everything else: pods that are known run on while the API server
//! is away.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use machinery_runtime::{Runtime, Watched};
use machinery_semantics::node_labels::{KUBELET_LABELS, WINDOWS_BUILD};
use serde_json::{Map, Value, json};

use super::facts::{self, Health, NodeFacts};
use crate::config::KubeletConfig;
use crate::csi::recorded_in_use;

/// First and longest pause between tries, as upstream's.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7));

/// Labels that are set again on a Node that is there already, as upstream's `updateDefaultLabels` does it. Others, of `--node-labels`
/// too, are the administrator's from the registration on.
fn default_labels() -> impl Iterator<Item = &'static str> {
    KUBELET_LABELS.into_iter().chain([WINDOWS_BUILD])
}

/// The Node object as registered, once it is. Clones are of the same registration.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    node: Arc<Watched<Option<Arc<Node>>>>,
}

impl Registration {
    /// Begins to register, in the background.
    pub(crate) fn begin(
        runtime: &Runtime,
        client: &Client,
        config: &Arc<KubeletConfig>,
        facts: &NodeFacts,
    ) -> Self {
        let node = Arc::new(Watched::new(None));
        let own = (runtime.clone(), client.clone(), config.clone(), facts.clone());
        let registered = node.clone();
        let begin = move || {
            let ((runtime, client, config, facts), registered) = (own.clone(), registered.clone());
            async move {
                let node = register(&runtime, &client, &config, &facts).await;
                registered.replace(Some(Arc::new(node)));
            }
        };
        runtime.keep("node registration", begin).detach();
        Self { node }
    }

    /// Waits until the node is registered, and returns the object as it was then.
    pub(crate) async fn registered(&self) -> Arc<Node> {
        let node = self.node.wait_for(Option::is_some).await;
        node.expect("it was waited for")
    }
}

/// Tries until the node is registered, and returns the object. One that is new is not Ready yet.
async fn register(
    runtime: &Runtime,
    client: &Client,
    config: &Arc<KubeletConfig>,
    facts: &NodeFacts,
) -> Node {
    let mut pause = BACKOFF.0;
    loop {
        match attempt(runtime, client, config, facts).await {
            Ok(node) => return node,
            Err(error) => tracing::info!(error = %error, "node not registered yet"),
        }
        runtime.sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

async fn attempt(
    runtime: &Runtime,
    client: &Client,
    config: &Arc<KubeletConfig>,
    facts: &NodeFacts,
) -> Result<Node, kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    if !config.register_node {
        // The maker of the Node says what it is.
        return api.get(&config.node_name).await;
    }
    let mut wanted = facts::node(config, facts, &Health::unknown(), runtime.now());
    if let Some(status) = &mut wanted.status {
        // Volumes that are mounted still: a Node that says nothing of them has them detached.
        let in_use = recorded_in_use(runtime, config).await;
        status.volumes_in_use = Some(in_use).filter(|in_use| !in_use.is_empty());
    }
    match api.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        // Another may make the nodes, and ours may be there.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::info!(error = status.message, "creating the node is forbidden");
        }
        other => return other,
    }
    let existing = api.get(&config.node_name).await?;
    let Some(metadata) = changes(&wanted.metadata, &existing.metadata) else {
        return Ok(existing);
    };
    let patch = Patch::Strategic(json!({"metadata": metadata}));
    api.patch(&config.node_name, &PatchParams::default(), &patch)
        .await
}

/// Changes to the metadata of a Node that is there already; `None` where it is right. Labels without a value are taken away.
fn changes(wanted: &ObjectMeta, existing: &ObjectMeta) -> Option<Value> {
    let (wanted_labels, labels) = (wanted.labels.as_ref()?, existing.labels.as_ref());
    let mut changed = Map::new();
    for label in default_labels() {
        let own = labels.and_then(|labels| labels.get(label));
        match wanted_labels.get(label).map(String::as_str) {
            Some("") if own.is_some() => drop(changed.insert(label.to_owned(), Value::Null)),
            None | Some("") => {}
            Some(value) if own.is_some_and(|own| own == value) => {}
            Some(value) => drop(changed.insert(label.to_owned(), value.into())),
        }
    }
    let annotations = existing.annotations.clone().unwrap_or_default();
    let mut wanted_annotations = wanted.annotations.clone().unwrap_or_default();
    wanted_annotations.retain(|name, value| annotations.get(name) != Some(value));
    let is_right = changed.is_empty() && wanted_annotations.is_empty();
    (!is_right).then(|| json!({"labels": changed, "annotations": wanted_annotations}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use parking_lot::Mutex;

    /// Stands for a node that does not register itself.
    const NOT_REGISTERED: u16 = 0;

    /// An API server that answers the create with this code, and has a Node with these labels or none.
    async fn attempted(code: u16, labels: Option<Value>) -> (Result<Node, kube::Error>, Vec<String>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let own = requests.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (own, labels) = (own.clone(), labels.clone());
            async move {
                let method = request.method().to_string();
                let body = request.into_body().collect_bytes().await.unwrap();
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let node =
                    |metadata: Value| json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata});
                let (code, answer) = match (method.as_str(), labels) {
                    ("POST", _) => (code, json!({"kind": "Status", "code": code, "message": "no"})),
                    (_, None) => (404, json!({"kind": "Status", "code": 404})),
                    ("GET", Some(labels)) => (200, node(json!({"labels": labels}))),
                    _ => (200, node(json!({"labels": sent["metadata"]["labels"]}))),
                };
                own.lock().push(method);
                let body = Full::new(bytes::Bytes::from(answer.to_string()));
                let answer = http::Response::builder().status(code).body(body);
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        let client = Client::new(service, "default");
        let mut config = KubeletConfig::for_data_dir(std::env::temp_dir());
        config.node_name = "n1".to_owned();
        config.node_labels = [("disk".to_owned(), "ssd".to_owned())].into();
        config.register_node = code != NOT_REGISTERED;
        let facts = NodeFacts::observe(&config);
        let node = attempt(&Runtime::real(), &client, &Arc::new(config), &facts).await;
        let requests = requests.lock().clone();
        (node, requests)
    }

    #[tokio::test]
    async fn node_that_is_made_anew_names_the_volumes_that_are_still_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let record = |place: &str, record: &str| {
            let place = folder.path().join(place);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("vol_data.json"), record).unwrap();
        };
        let of_pods = "pods/uid/volumes/kubernetes.io~csi";
        record(
            &format!("{of_pods}/pv"),
            r#"{"driverName": "d.example", "volumeHandle": "one", "volumeLifecycleMode": "Persistent"}"#,
        );
        record(
            &format!("{of_pods}/inline"),
            r#"{"driverName": "d.example", "volumeHandle": "own", "volumeLifecycleMode": "Ephemeral"}"#,
        );
        let created = Arc::new(Mutex::new(Value::Null));
        let own = created.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let own = own.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                *own.lock() = serde_json::from_slice(&body).unwrap();
                Ok::<_, std::io::Error>(http::Response::new(Full::new(body)))
            }
        });
        let config = Arc::new(KubeletConfig::for_data_dir(folder.path().to_owned()));
        let facts = NodeFacts::observe(&config);
        let client = Client::new(service, "default");
        attempt(&Runtime::real(), &client, &config, &facts).await.unwrap();
        let in_use = created.lock()["status"]["volumesInUse"].clone();
        assert_eq!(in_use, json!(["kubernetes.io/csi/d.example^one"]));
    }

    #[tokio::test]
    async fn node_that_exists_is_taken_over_where_creates_are_forbidden() {
        for code in [403, 409] {
            let (node, requests) = attempted(code, Some(json!({"disk": "hdd"}))).await;
            assert_eq!(requests, ["POST", "GET", "PATCH"], "{code}");
            let labels = node.unwrap().metadata.labels.unwrap();
            assert_eq!(labels["kubernetes.io/hostname"], "n1");
            assert!(!labels.contains_key("disk"), "the administrator's stays");
        }
        let (node, requests) = attempted(403, None).await;
        assert!(node.is_err() && requests == ["POST", "GET"], "{requests:?}");
        let (node, requests) = attempted(NOT_REGISTERED, Some(json!({}))).await;
        assert!(node.is_ok() && requests == ["GET"], "{requests:?}");
        let (node, requests) = attempted(500, Some(json!({}))).await;
        assert!(node.is_err() && requests == ["POST"], "{requests:?}");
    }

    #[test]
    fn metadata_of_a_node_is_changed_in_default_labels_alone() {
        let metadata = |labels: &[(&str, &str)], annotation: &str| {
            let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            ObjectMeta {
                labels: Some(labels.iter().map(own).collect()),
                annotations: Some([("managed".to_owned(), annotation.to_owned())].into()),
                ..ObjectMeta::default()
            }
        };
        let zone = "topology.kubernetes.io/zone";
        let wanted = metadata(
            &[("kubernetes.io/os", "linux"), (zone, ""), ("disk", "ssd")],
            "true",
        );
        let right = metadata(&[("kubernetes.io/os", "linux"), ("disk", "hdd")], "true");
        assert_eq!(changes(&wanted, &right), None);
        let wrong = metadata(&[("kubernetes.io/os", "plan9"), (zone, "a")], "false");
        let expected = json!({
            "labels": {"kubernetes.io/os": "linux", zone: null},
            "annotations": {"managed": "true"},
        });
        assert_eq!(changes(&wanted, &wrong), Some(expected));
    }
}
