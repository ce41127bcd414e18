//! Connections that requests are proxied over, bounded by user and by where they lead: each takes a file beside the
//! client's own, and those to a kubelet take places there, which it has for all tenants together.
//!
//! Accounts are free to make, so what bounds a user bounds the namespace as well; and a user or namespace has no more than
//! are left, so that `n` greedy ones get less and less and the next one still finds some. Administrators, nodes and
//! controllers are bounded by user and extension only; they and users keep a part of all connections each.

use apiserver_endpoints::UserClass;
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Streams to one pod; its kubelet takes twice as many, from all API servers together.
const STREAMS_OF_POD_MAX: usize = 64;
/// Streams of ordinary users to one kubelet; it takes 512 from API servers.
const STREAMS_TO_NODE_MAX: usize = 384;
/// Such streams of one user, and of one namespace.
const SHARE_OF_NODE: usize = 128;

/// The bounds, and the open connections of each user, namespace and extension.
#[derive(Debug)]
pub(crate) struct ProxiedConnections {
    most: usize,
    open: Mutex<HashMap<Counted, usize>>,
}

/// A connection that is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) user: &'a UserInfo,
    /// Of the pod or service; empty for a node.
    pub(crate) namespace: &'a str,
    /// Of log, exec, attach and port-forward: the pod's name, and the address of its kubelet.
    pub(crate) stream: Option<(&'a str, &'a str)>,
    /// Name of the APIService of an API extension.
    pub(crate) extension: Option<&'a str>,
}

/// Key that connections are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Counted {
    All,
    User(Arc<str>),
    Ordinary,
    Namespace(Arc<str>),
    OnNode(Arc<str>),
    UserOnNode(Arc<str>, Arc<str>),
    NamespaceOnNode(Arc<str>, Arc<str>),
    Pod(Arc<str>, Arc<str>),
    Extension(Arc<str>),
    /// Of users that are not ordinary.
    Components,
    /// The same, to an extension.
    ComponentsTo(Arc<str>),
    /// Of one of them, to an extension.
    ComponentTo(Arc<str>, Arc<str>),
}

/// A connection that may be open; dropped when it is closed.
#[derive(Debug)]
pub(crate) struct Permit {
    of: Arc<ProxiedConnections>,
    counted: Vec<Counted>,
}

impl ProxiedConnections {
    /// At most so many at once, of which no user has more than half, and ordinary users no more than three quarters, as
    /// others.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// Room for one more, if there is any.
    pub(crate) fn open(self: &Arc<Self>, wanted: Wanted<'_>) -> Option<Permit> {
        let mut open = self.open.lock();
        let bounds = self.bounds(wanted, &open);
        let has_room = |(counted, most): &(Counted, usize)| open.get(counted).is_none_or(|own| own < most);
        if !bounds.iter().all(has_room) {
            return None;
        }
        let counted: Vec<Counted> = bounds.into_iter().map(|(counted, _)| counted).collect();
        for own in &counted {
            *open.entry(own.clone()).or_default() += 1;
        }
        Some(Permit {
            of: Arc::clone(self),
            counted,
        })
    }

    /// Returns the limits of each key that this one counts for.
    fn bounds(&self, wanted: Wanted<'_>, open: &HashMap<Counted, usize>) -> Vec<(Counted, usize)> {
        let left = |of: &Counted, most: usize| most.saturating_sub(open.get(of).copied().unwrap_or_default());
        let half = self.most.div_ceil(2);
        let user: Arc<str> = wanted.user.name.as_str().into();
        let by_user = Counted::User(user.clone());
        let all = (Counted::All, self.most);
        let of_class = self.most - self.most / 4;
        if UserClass::of(wanted.user) != UserClass::Ordinary {
            let mut bounds = vec![all];
            // Administrators, who repair the cluster, share no bound with components that may be broken.
            if UserClass::of(wanted.user) == UserClass::System {
                bounds.push((Counted::Components, of_class));
            }
            if let Some(extension) = wanted.extension {
                // An extension names the resources that controllers watch, each over a connection; one that is slow keeps
                // those of each node and controller.
                let to = (Counted::ComponentsTo(extension.into()), self.most.div_ceil(8));
                let share = left(&to.0, to.1).min(left(&by_user, half));
                bounds.push(to);
                bounds.push((Counted::ComponentTo(user, extension.into()), share));
            }
            bounds.push((by_user, half));
            return bounds;
        }
        let ordinary = (Counted::Ordinary, of_class);
        let share = half.min(left(&ordinary.0, ordinary.1));
        let namespace: Arc<str> = wanted.namespace.into();
        let mut bounds = vec![all, ordinary, (by_user, share)];
        if !namespace.is_empty() {
            bounds.push((Counted::Namespace(namespace.clone()), share));
        }
        if let Some(extension) = wanted.extension {
            // One that never answers leaves as many to others.
            bounds.push((Counted::Extension(extension.into()), share));
        }
        if let Some((pod, node)) = wanted.stream {
            let node: Arc<str> = node.into();
            let on_node = (Counted::OnNode(node.clone()), STREAMS_TO_NODE_MAX);
            let share = SHARE_OF_NODE.min(left(&on_node.0, on_node.1));
            bounds.push(on_node);
            bounds.push((Counted::UserOnNode(user, node.clone()), share));
            bounds.push((Counted::NamespaceOnNode(namespace.clone(), node), share));
            bounds.push((Counted::Pod(namespace, pod.into()), STREAMS_OF_POD_MAX));
        }
        bounds
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        for counted in &self.counted {
            let left = open.get_mut(counted).map(|own| {
                *own -= 1;
                *own
            });
            if left == Some(0) {
                open.remove(counted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserInfo {
        UserInfo::named(name, [UserInfo::AUTHENTICATED])
    }

    fn administrator() -> UserInfo {
        UserInfo::named("admin", [UserInfo::MASTERS])
    }

    /// Opens as many as there is room for.
    fn fill(of: &Arc<ProxiedConnections>, user: &UserInfo, to: (&str, &str, &str)) -> Vec<Permit> {
        let (namespace, pod, node) = to;
        let wanted = Wanted {
            user,
            namespace,
            stream: (!pod.is_empty()).then_some((pod, node)),
            extension: None,
        };
        std::iter::from_fn(|| of.open(wanted)).collect()
    }

    #[test]
    fn connections_leave_some_to_other_users() {
        let connections = ProxiedConnections::new(16);
        let (one, two) = (user("one"), user("two"));
        let mut held = fill(&connections, &one, ("a", "", ""));
        assert_eq!(held.len(), 6, "as many as are left");
        assert!(
            fill(&connections, &two, ("a", "", "")).is_empty(),
            "it is the namespace's share, too"
        );
        let others = fill(&connections, &two, ("b", "", ""));
        assert_eq!(others.len(), 3);
        assert!(fill(&connections, &one, ("c", "", "")).is_empty());
        let kept = fill(&connections, &administrator(), ("a", "", ""));
        assert_eq!(kept.len(), 7);
        drop(kept);
        held.pop();
        assert_eq!(fill(&connections, &user("three"), ("c", "", "")).len(), 2);
        drop((held, others));
        assert!(connections.open.lock().is_empty());
    }

    #[test]
    fn streams_are_bounded_by_pod_user_and_namespace() {
        let connections = ProxiedConnections::new(10_000);
        let (one, two) = (user("one"), user("two"));
        let mut held = fill(&connections, &one, ("a", "p", "node"));
        assert_eq!(held.len(), STREAMS_OF_POD_MAX);
        assert!(
            fill(&connections, &two, ("a", "p", "node")).is_empty(),
            "it is the pod's bound"
        );
        held.extend(fill(&connections, &one, ("a", "q", "node")));
        assert_eq!(held.len(), SHARE_OF_NODE);
        let to = |who: &UserInfo, namespace, node| fill(&connections, who, (namespace, "r", node)).len();
        assert_eq!(to(&one, "b", "node"), 0, "the user's, in whatever namespace");
        assert_eq!(to(&two, "a", "node"), 0, "the namespace's, by whatever account");
        assert_eq!(to(&one, "a", "other"), STREAMS_OF_POD_MAX);
        assert_eq!(to(&two, "b", "node"), STREAMS_OF_POD_MAX);
        assert_eq!(to(&administrator(), "a", "node"), 5_000);
        let proxied = fill(&connections, &one, ("a", "", ""));
        assert!(
            proxied.len() > SHARE_OF_NODE,
            "what is proxied takes no place at a kubelet"
        );
    }

    #[test]
    fn connections_to_one_extension_leave_some_to_others() {
        let connections = ProxiedConnections::new(16);
        let to = |user: &UserInfo, extension| {
            let wanted = Wanted {
                user,
                namespace: "",
                stream: None,
                extension: Some(extension),
            };
            std::iter::from_fn(|| connections.open(wanted)).collect::<Vec<_>>()
        };
        let held = [
            to(&user("one"), "slow"),
            to(&user("two"), "slow"),
            to(&user("three"), "slow"),
        ];
        assert_eq!(
            held.iter().map(Vec::len).sum::<usize>(),
            6,
            "half of those for ordinary users"
        );
        let others = [to(&user("four"), "other"), to(&user("five"), "another")];
        assert_eq!(others.each_ref().map(Vec::len), [3, 2]);
        assert!(!to(&user("six"), "quick").is_empty());
    }

    #[test]
    fn controllers_connections_to_one_extension_leave_some_to_others() {
        let connections = ProxiedConnections::new(64);
        let to = |user: &UserInfo, extension| {
            let wanted = Wanted {
                user,
                namespace: "",
                stream: None,
                extension,
            };
            std::iter::from_fn(|| connections.open(wanted)).collect::<Vec<_>>()
        };
        let controllers = UserInfo::named("system:kube-controller-manager", [UserInfo::AUTHENTICATED]);
        assert_ne!(UserClass::of(&controllers), UserClass::Ordinary);
        let held = ["one", "two"].map(|name| to(&controllers, Some(name)));
        assert_eq!(held.each_ref().map(Vec::len), [4, 4], "half of an eighth of all");
        let others = [UserInfo::node("a"), UserInfo::node("b"), administrator()];
        let others = others.map(|user| to(&user, Some("one")));
        assert_eq!(others.each_ref().map(Vec::len), [2, 1, 1], "an eighth together");
        drop(others);
        assert_eq!(
            to(&user("one"), Some("one")).len(),
            24,
            "those of users are others"
        );
        assert_eq!(to(&controllers, None).len(), 24, "half of all for one user");
        drop(held);
        let of_node = |name| fill(&connections, &UserInfo::node(name), ("", "", ""));
        let held = ["a", "b"].map(of_node);
        assert_eq!(held.each_ref().map(Vec::len), [32, 16], "three quarters together");
        assert_eq!(to(&user("one"), None).len(), 16, "a quarter is left to users");
        assert_eq!(to(&administrator(), None).len(), 16, "and to administrators");
    }

    #[test]
    fn streams_of_many_namespaces_leave_some_of_a_node() {
        let connections = ProxiedConnections::new(10_000);
        let greedy = |number: usize| {
            let (user, namespace) = (user(&number.to_string()), format!("n{number}"));
            let pods = ["p", "q"].map(|pod| fill(&connections, &user, (&namespace, pod, "node")));
            pods.into_iter().flatten().collect::<Vec<_>>()
        };
        let held: Vec<Vec<Permit>> = (0..8).map(greedy).collect();
        let shares: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(shares, [128, 128, 64, 32, 16, 8, 4, 2]);
        assert!(!fill(&connections, &user("late"), ("late", "p", "node")).is_empty());
    }
}
