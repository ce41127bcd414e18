//! Drivers in the objects of this node: the CSINode has each driver with its name of the node, the Node has those names in an
//! annotation and the node's place in labels. Upstream's `nodeinfomanager`.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, Patch, PatchParams, PostParams};
use node_plugin_api::csi::messages::NodeGetInfoResponse;
use serde_json::{Value, json};

use super::manager::Shared;

const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// Tries of a write, and the pause after the first, which grows; upstream's `updateBackoff`.
const TRIES: u32 = 4;
const RETRY_AFTER: Duration = Duration::from_millis(10);
const RETRY_FACTOR: u32 = 5;

impl Shared {
    /// Shows a driver in the node's objects. Words are upstream's.
    ///
    /// # Errors
    /// The driver's answer does not fit the node, or the API server does not take it.
    pub(super) async fn show_driver(&self, name: &str, info: &NodeGetInfoResponse) -> Result<(), String> {
        if info.node_id.is_empty() {
            return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
        }
        let topology = info.accessible_topology.clone().unwrap_or_default().segments;
        let _writing = self.writing.lock().await;
        let changed = self
            .tries(|| self.change_node(name, Some((info.node_id.as_str(), &topology))))
            .await;
        changed.map_err(|why| {
            format!("error updating Node object with CSI driver node info: error updating node: {why}")
        })?;
        let driver = node_driver(name, info);
        let changed = self
            .tries(|| self.change_csi_node(|drivers| set(drivers, &driver)))
            .await;
        changed.map_err(|why| {
            format!("error updating CSINode object with CSI driver node info: error updating CSINode: {why}")
        })
    }

    /// Takes a driver out of the node's objects.
    ///
    /// # Errors
    /// The API server does not take it.
    pub(super) async fn hide_driver(&self, name: &str) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        let left_out = |drivers: &mut Vec<CSINodeDriver>| {
            let before = drivers.len();
            drivers.retain(|own| own.name != name);
            drivers.len() != before
        };
        self.tries(|| self.change_csi_node(left_out)).await?;
        self.tries(|| self.change_node(name, None)).await
    }

    /// Makes the CSINode object, where it is not there.
    ///
    /// # Errors
    /// The API server does not take it.
    pub(super) async fn make_csi_node(&self) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        self.tries(|| self.change_csi_node(|_| false)).await
    }

    async fn tries<F: Future<Output = Result<(), String>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<(), String> {
        let mut pause = RETRY_AFTER;
        for _ in 1..TRIES {
            if attempt().await.is_ok() {
                return Ok(());
            }
            self.runtime.sleep(pause).await;
            pause *= RETRY_FACTOR;
        }
        attempt().await
    }

    async fn change_node(
        &self,
        driver: &str,
        own: Option<(&str, &BTreeMap<String, String>)>,
    ) -> Result<(), String> {
        let (api, name): (Api<Node>, _) = (Api::all(self.client.clone()), &self.config.node_name);
        let node = api.get(name).await.map_err(|error| error.to_string())?;
        let Some(changes) = node_changes(&node.metadata, driver, own)? else {
            return Ok(());
        };
        let patch = Patch::Merge(json!({ "metadata": changes }));
        let written = api.patch(name, &PatchParams::default(), &patch).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    async fn change_csi_node(&self, change: impl Fn(&mut Vec<CSINodeDriver>) -> bool) -> Result<(), String> {
        let (api, name): (Api<CSINode>, _) = (Api::all(self.client.clone()), &self.config.node_name);
        let written = match api.get_opt(name).await.map_err(|error| error.to_string())? {
            Some(mut found) => match change(&mut found.spec.drivers) {
                true => api.replace(name, &PostParams::default(), &found).await,
                false => return Ok(()),
            },
            None => {
                let mut new = self.new_csi_node().await?;
                change(&mut new.spec.drivers);
                api.create(&PostParams::default(), &new).await
            }
        };
        written.map(drop).map_err(|error| error.to_string())
    }

    async fn new_csi_node(&self) -> Result<CSINode, String> {
        let (api, name): (Api<Node>, _) = (Api::all(self.client.clone()), &self.config.node_name);
        let node = api.get(name).await.map_err(|error| error.to_string())?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(CSINode {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: CSINodeSpec { drivers: Vec::new() },
            ..CSINode::default()
        })
    }
}

/// A driver as the CSINode has it.
fn node_driver(name: &str, info: &NodeGetInfoResponse) -> CSINodeDriver {
    let topology = info
        .accessible_topology
        .iter()
        .flat_map(|place| place.segments.keys());
    let keys: Vec<String> = topology.cloned().collect();
    let count = i32::try_from(info.max_volumes_per_node).unwrap_or(i32::MAX);
    CSINodeDriver {
        name: name.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: (!keys.is_empty()).then_some(keys),
        allocatable: (info.max_volumes_per_node > 0).then_some(VolumeNodeResources { count: Some(count) }),
    }
}

/// Puts a driver into the list; false where it is there just so.
fn set(drivers: &mut Vec<CSINodeDriver>, driver: &CSINodeDriver) -> bool {
    if drivers.contains(driver) {
        return false;
    }
    drivers.retain(|own| own.name != driver.name);
    drivers.push(driver.clone());
    true
}

/// Changes of the Node's metadata for a driver that is there, with its name of the node and the node's place, or that is not.
/// `None` where it is right. Labels stay when a driver goes, as upstream.
fn node_changes(
    metadata: &ObjectMeta,
    driver: &str,
    own: Option<(&str, &BTreeMap<String, String>)>,
) -> Result<Option<Value>, String> {
    let text = metadata.annotations.as_ref().and_then(|all| all.get(NODE_IDS));
    let text = text.map(String::as_str).unwrap_or_default();
    let unreadable =
        |error| format!("failed to parse node's {NODE_IDS:?} annotation value ({text:?}) err={error}");
    let mut ids: BTreeMap<String, String> = match text {
        "" => BTreeMap::new(),
        text => serde_json::from_str(text).map_err(unreadable)?,
    };
    let before = ids.clone();
    let mut labels = BTreeMap::new();
    match own {
        None => drop(ids.remove(driver)),
        Some((id, topology)) => {
            ids.insert(driver.to_owned(), id.to_owned());
            labels = new_labels(metadata, topology)?;
        }
    }
    if ids == before && labels.is_empty() {
        return Ok(None);
    }
    let text = match ids.is_empty() {
        true => Value::Null,
        false => json!(ids).to_string().into(),
    };
    Ok(Some(json!({"annotations": {NODE_IDS: text}, "labels": labels})))
}

/// Labels of a place that the node has not.
fn new_labels(
    metadata: &ObjectMeta,
    topology: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let known = metadata.labels.clone().unwrap_or_default();
    let mut new = BTreeMap::new();
    for (key, value) in topology {
        match known.get(key) {
            Some(own) if own == value => {}
            Some(own) => {
                return Err(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{own:?}"
                ));
            }
            None => drop(new.insert(key.clone(), value.clone())),
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_plugin_api::csi::messages::Topology;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        own.collect()
    }

    fn metadata(ids: Option<&str>, labels: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            annotations: ids.map(|ids| texts(&[(NODE_IDS, ids)])),
            labels: Some(texts(labels)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn driver_is_shown_in_the_nodes_annotation_and_labels() {
        let place = texts(&[("zone.example/name", "a")]);
        let new = node_changes(&metadata(None, &[]), "d", Some(("n-1", &place)))
            .unwrap()
            .unwrap();
        assert_eq!(new["annotations"][NODE_IDS], "{\"d\":\"n-1\"}");
        assert_eq!(new["labels"]["zone.example/name"], "a");
        let known = metadata(Some("{\"d\":\"n-1\",\"e\":\"x\"}"), &[("zone.example/name", "a")]);
        assert_eq!(node_changes(&known, "d", Some(("n-1", &place))).unwrap(), None);
        let left = node_changes(&known, "d", None).unwrap().unwrap();
        assert_eq!(left["annotations"][NODE_IDS], "{\"e\":\"x\"}");
        let last = node_changes(&metadata(Some("{\"d\":\"n-1\"}"), &[]), "d", None)
            .unwrap()
            .unwrap();
        assert_eq!(last["annotations"][NODE_IDS], Value::Null);
        assert_eq!(node_changes(&metadata(None, &[]), "d", None).unwrap(), None);
    }

    #[test]
    fn driver_that_says_another_place_than_the_nodes_is_refused() {
        let place = texts(&[("zone.example/name", "a")]);
        let other = metadata(None, &[("zone.example/name", "b")]);
        assert_eq!(
            node_changes(&other, "d", Some(("n-1", &place))).unwrap_err(),
            "detected topology value collision: driver reported \"zone.example/name\":\"a\" but existing label is \"zone.example/name\":\"b\""
        );
    }

    #[test]
    fn driver_of_a_csi_node_has_what_it_says() {
        let mut info = NodeGetInfoResponse {
            node_id: "n-1".to_owned(),
            max_volumes_per_node: i64::MAX,
            accessible_topology: Some(Topology {
                segments: texts(&[("b", "1"), ("a", "2")]),
            }),
        };
        let driver = node_driver("d", &info);
        assert_eq!(
            driver.topology_keys.as_deref(),
            Some(&["a".to_owned(), "b".to_owned()][..])
        );
        assert_eq!(driver.allocatable.as_ref().unwrap().count, Some(i32::MAX));
        let mut drivers = vec![node_driver("e", &info)];
        assert!(set(&mut drivers, &driver) && !set(&mut drivers, &driver));
        (info.max_volumes_per_node, info.accessible_topology) = (0, None);
        let other = node_driver("d", &info);
        assert_eq!((&other.allocatable, &other.topology_keys), (&None, &None));
        assert!(set(&mut drivers, &other));
        assert_eq!(drivers.len(), 2);
    }
}
