//! Resources and their paths.

use crate::client::push_encoded;
use k8s_openapi::NamespaceResourceScope;
use machinery_meta::{GroupKind, GroupResource, GroupVersionKind, GroupVersionResource};
use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;

/// A served resource: group, version, plural, kind and scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiResource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    /// `v1`.
    pub version: Cow<'static, str>,
    /// The lower-case plural that paths write.
    pub plural: Cow<'static, str>,
    /// The kind that `kind` writes.
    pub kind: Cow<'static, str>,
    /// True if objects live in namespaces.
    pub namespaced: bool,
}

impl ApiResource {
    /// The resource of a `k8s-openapi` type.
    pub fn of<K>() -> Self
    where
        K: k8s_openapi::Resource,
        K::Scope: 'static,
    {
        Self {
            group: Cow::Borrowed(K::GROUP),
            version: Cow::Borrowed(K::VERSION),
            plural: Cow::Borrowed(K::URL_PATH_SEGMENT),
            kind: Cow::Borrowed(K::KIND),
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }

    /// The value of `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&*self.group, &*self.version, &*self.kind)
    }

    /// Group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.to_string(),
            kind: self.kind.to_string(),
        }
    }

    /// Group, version and plural.
    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource::new(&*self.group, &*self.version, &*self.plural)
    }

    /// Group and plural.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.group, &*self.plural)
    }

    /// The path of the collection; an empty namespace means all of them.
    pub fn collection_path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{root}/{}", self.plural)
        }
    }

    /// The path of one object, or of its subresource where `subresource` is not empty.
    pub fn object_path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        let mut path = self.collection_path(namespace);
        path.push('/');
        // As Go's client writes a path's segment.
        push_encoded(&mut path, name, b"-_.~$&+:=@");
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }
}

impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group_resource().fmt(f)
    }
}

/// Selection of a reflector: a resource, in one namespace or all, narrowed by selectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListWatch {
    /// The resource.
    pub resource: ApiResource,
    /// Empty for all namespaces.
    pub namespace: String,
    /// Empty for every object.
    pub label_selector: String,
    /// Empty for every object.
    pub field_selector: String,
}

impl ListWatch {
    /// Every object of a resource.
    pub fn all(resource: ApiResource) -> Self {
        Self {
            resource,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
        }
    }

    /// Every object of a `k8s-openapi` type.
    pub fn of<K>() -> Self
    where
        K: k8s_openapi::Resource,
        K::Scope: 'static,
    {
        Self::all(ApiResource::of::<K>())
    }

    /// Narrows it to this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Narrows it to these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = selector.into();
        self
    }

    /// Narrows it to these fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = selector.into();
        self
    }

    pub(crate) fn path(&self) -> String {
        self.resource.collection_path(&self.namespace)
    }

    /// The selectors as query pairs.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if !self.label_selector.is_empty() {
            query.push(("labelSelector", self.label_selector.clone()));
        }
        if !self.field_selector.is_empty() {
            query.push(("fieldSelector", self.field_selector.clone()));
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};

    #[test]
    fn paths_follow_group_and_scope() {
        let deployment = ApiResource::of::<Deployment>();
        assert_eq!(
            deployment.object_path("a", "b", "status"),
            "/apis/apps/v1/namespaces/a/deployments/b/status"
        );
        assert_eq!(deployment.collection_path(""), "/apis/apps/v1/deployments");
        let node = ApiResource::of::<Node>();
        assert!(!node.namespaced);
        assert_eq!(node.object_path("", "n", ""), "/api/v1/nodes/n");
        // A name of a reference is any text.
        let path = node.object_path("", "a:b c?d#é", "");
        assert_eq!(path, "/api/v1/nodes/a:b%20c%3Fd%23%C3%A9");
    }
}
