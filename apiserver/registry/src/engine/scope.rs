//! The scope of a request.

/// The whole cluster, or one namespace of it. Made once, from the request's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Objects of cluster-scoped kinds; of namespaced kinds the collections over all namespaces.
    #[default]
    Cluster,
    Namespace(String),
}

impl Scope {
    /// The scope of a namespace's name; an empty one is the cluster.
    pub fn of(namespace: &str) -> Self {
        if namespace.is_empty() {
            Self::Cluster
        } else {
            Self::Namespace(namespace.to_owned())
        }
    }

    /// The namespace, empty for the cluster.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Cluster => "",
            Self::Namespace(name) => name,
        }
    }
}
