//! Lets authentication, authorization and admission read objects from the registry.

use apiserver_registry::options::{ListOptions, Predicate, RevisionMatch};
use apiserver_registry::{Registry, Scope};
use apiserver_storage::Entry;
use machinery_meta::reader::{ObjectReader, ReadError, ReadFuture, ReadObject};
use machinery_meta::{FieldSelector, GroupResource, ObjectHeader, ObjectKey};
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Pods by the node they are bound to, kept by the authorization feed.
#[derive(Default)]
pub(crate) struct PodsByNode(RwLock<Pods>);

#[derive(Default)]
struct Pods {
    nodes: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
    node_of: HashMap<ObjectKey, Arc<str>>,
}

impl PodsByNode {
    pub(crate) fn replace<'a>(&self, pods: impl Iterator<Item = &'a ObjectHeader>) {
        let mut fresh = Pods::default();
        pods.for_each(|pod| fresh.put(pod));
        *self.0.write() = fresh;
    }

    pub(crate) fn put(&self, pod: &ObjectHeader) {
        self.0.write().put(pod);
    }

    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.0.write().remove(key);
    }

    fn of(&self, node: &str, namespace: &str) -> Vec<ObjectKey> {
        let pods = self.0.read();
        let all = pods.nodes.get(node).into_iter().flatten();
        all.filter(|key| namespace.is_empty() || key.namespace == namespace)
            .cloned()
            .collect()
    }
}

impl Pods {
    fn put(&mut self, pod: &ObjectHeader) {
        let node = pod.fields.iter().find(|(field, _)| &**field == "spec.nodeName");
        let node = node.map(|(_, node)| &**node).filter(|node| !node.is_empty());
        if self.node_of.get(&pod.key).map(|own| &**own) == node {
            return;
        }
        self.remove(&pod.key);
        if let Some(node) = node {
            let node: Arc<str> = node.into();
            self.nodes
                .entry(Arc::clone(&node))
                .or_default()
                .insert(pod.key.clone());
            self.node_of.insert(pod.key.clone(), node);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(node) = self.node_of.remove(key) else {
            return;
        };
        if let Some(pods) = self.nodes.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }
}

/// See the module.
pub(crate) struct RegistryReader {
    registry: Registry,
    pods: Arc<PodsByNode>,
}

impl fmt::Debug for RegistryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryReader").finish_non_exhaustive()
    }
}

impl RegistryReader {
    pub(crate) fn new(registry: &Registry, pods: &Arc<PodsByNode>) -> Self {
        Self {
            registry: registry.clone(),
            pods: Arc::clone(pods),
        }
    }

    fn no_such(resource: &GroupResource, key: &str) -> ReadError {
        ReadError {
            resource: resource.to_string(),
            key: key.to_owned(),
            cause: "not served".to_owned(),
        }
    }
}

/// The object's JSON without type meta.
pub(crate) fn read_object(entry: &Entry) -> ReadObject {
    let [_, head, tail] = &entry.record.parts;
    let revision = entry.revision.to_string();
    let mut json = Vec::with_capacity(head.len() + tail.len() + revision.len() + 3);
    json.push(b'{');
    for part in [&head[..], b"\"", revision.as_bytes(), b"\"", &tail[..]] {
        json.extend_from_slice(part);
    }
    ReadObject {
        header: Arc::clone(&entry.record.header),
        json,
    }
}

impl ObjectReader for RegistryReader {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, &key.name))?;
            match store
                .get(&Scope::of(&key.namespace), &key.name, RevisionMatch::Any)
                .await
            {
                Ok(entry) => Ok(Some(read_object(&entry))),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(failed(resource, &key.to_string(), &error)),
            }
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let everything = FieldSelector::everything();
            self.list_where(resource, namespace, &everything).await
        })
    }

    fn list_where<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        selector: &'a FieldSelector,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, ""))?;
            let predicate = Predicate {
                fields: selector.clone(),
                ..Predicate::default()
            };
            let options = ListOptions {
                predicate,
                revision: RevisionMatch::Any,
                ..ListOptions::default()
            };
            let page = store
                .list(&Scope::of(namespace), &options)
                .await
                .map_err(|error| failed(resource, namespace, &error))?;
            Ok(page.entries.iter().map(|entry| read_object(entry)).collect())
        })
    }

    fn pods_of_node<'a>(&'a self, node: &'a str, namespace: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let resource = GroupResource::new("", "pods");
            let mut found = Vec::new();
            for key in self.pods.of(node, namespace) {
                found.extend(self.get(&resource, &key).await?);
            }
            Ok(found)
        })
    }
}

fn failed(resource: &GroupResource, key: &str, error: &apiserver_registry::RegistryError) -> ReadError {
    ReadError {
        resource: resource.to_string(),
        key: key.to_owned(),
        cause: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str, node: &str) -> ObjectHeader {
        ObjectHeader {
            key: ObjectKey::new(namespace, name),
            fields: vec![
                ("spec.nodeName".into(), node.into()),
                ("status.phase".into(), "Pending".into()),
            ],
            ..ObjectHeader::default()
        }
    }

    #[track_caller]
    fn check(index: &PodsByNode, node: &str, namespace: &str, expected: &[&str]) {
        let found: Vec<String> = index
            .of(node, namespace)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, expected, "{node} {namespace}");
    }

    #[test]
    fn pods_by_node_follow_each_change() {
        let index = PodsByNode::default();
        for (namespace, name, node) in [
            ("a", "one", ""),
            ("a", "two", "n1"),
            ("b", "two", "n1"),
            ("a", "three", "n2"),
        ] {
            index.put(&pod(namespace, name, node));
        }
        check(&index, "n1", "", &["a/two", "b/two"]);
        check(&index, "n1", "a", &["a/two"]);
        check(&index, "", "", &[]);
        // Bound, made anew elsewhere under the same name, and gone.
        index.put(&pod("a", "one", "n1"));
        index.put(&pod("a", "two", "n2"));
        index.remove(&ObjectKey::new("b", "two"));
        index.remove(&ObjectKey::new("b", "nothing"));
        check(&index, "n1", "", &["a/one"]);
        check(&index, "n2", "", &["a/three", "a/two"]);
        index.put(&pod("a", "two", ""));
        check(&index, "n2", "", &["a/three"]);
        let fresh = [pod("a", "four", "n1")];
        index.replace(fresh.iter());
        check(&index, "n1", "", &["a/four"]);
        check(&index, "n2", "", &[]);
        index.remove(&ObjectKey::new("a", "four"));
        assert!(index.0.read().nodes.is_empty() && index.0.read().node_of.is_empty());
    }
}
