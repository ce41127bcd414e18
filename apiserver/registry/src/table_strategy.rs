//! The strategy of kinds without rules of their own: a few traits, the rest is the table's.

use crate::context::RequestContext;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{Strategy, name_rule, path_segment_problems};
use machinery_meta::syntax;
use machinery_schema::Tree;

/// How a kind differs in what every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    pub names: NameRule,
    pub generation: bool,
    pub create_on_update: bool,
    pub unconditional_update: bool,
    pub returns_deleted: bool,
    pub garbage: GarbagePolicy,
}

/// Which names a kind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    Label1035,
    PathSegment,
}

impl NameRule {
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::Subdomain => name_rule(syntax::dns1123_subdomain, name, prefix),
            Self::Label => name_rule(syntax::dns1123_label, name, prefix),
            Self::Label1035 => name_rule(syntax::dns1035_label, name, prefix),
            Self::PathSegment => path_segment_problems(name, prefix),
        }
    }
}

impl Traits {
    pub const PLAIN: Self = Self {
        names: NameRule::Subdomain,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        garbage: GarbagePolicy::Background,
    };

    /// The traits of a built-in resource.
    pub fn of(group: &str, plural: &str) -> Self {
        let plain = Self::PLAIN;
        let counted = Self { generation: true, ..plain };
        match (group, plural) {
            ("", "namespaces") => Self { names: NameRule::Label, ..plain },
            ("", "services") => Self { names: NameRule::Label1035, returns_deleted: true, ..plain },
            ("", "pods") => Self { generation: true, returns_deleted: true, ..plain },
            ("", "events") | ("events.k8s.io", "events") => {
                Self { create_on_update: true, garbage: GarbagePolicy::Unsupported, ..plain }
            }
            ("", "endpoints" | "limitranges") => Self { create_on_update: true, ..plain },
            ("", "replicationcontrollers") => Self { garbage: GarbagePolicy::Orphan, ..counted },
            (
                "",
                "persistentvolumeclaims" | "persistentvolumes" | "podtemplates" | "resourcequotas" | "serviceaccounts",
            ) => Self { returns_deleted: true, generation: plural == "podtemplates", ..plain },
            ("batch", "jobs") => Self { garbage: GarbagePolicy::Orphan, ..counted },
            ("apps" | "batch", _) => Self { generation: plural != "controllerrevisions", ..plain },
            ("rbac.authorization.k8s.io", _) => {
                Self { names: NameRule::PathSegment, create_on_update: true, ..plain }
            }
            ("coordination.k8s.io", _) => Self { create_on_update: true, unconditional_update: false, ..plain },
            ("policy", _) => Self { generation: true, unconditional_update: false, ..plain },
            ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies") => counted,
            ("networking.k8s.io", "ipaddresses") => plain,
            ("discovery.k8s.io" | "flowcontrol.apiserver.k8s.io" | "scheduling.k8s.io", _) => counted,
            ("admissionregistration.k8s.io", _) => counted,
            ("apiextensions.k8s.io", _) => Self { unconditional_update: false, ..counted },
            ("apiregistration.k8s.io", _) => Self { unconditional_update: false, ..plain },
            ("storage.k8s.io", "storageclasses") => Self { returns_deleted: true, ..plain },
            ("storage.k8s.io", "volumeattachments" | "volumeattributesclasses" | "csinodes") => {
                Self { returns_deleted: true, unconditional_update: false, ..plain }
            }
            ("storage.k8s.io", "csidrivers") => Self { generation: true, returns_deleted: true, ..plain },
            ("resource.k8s.io", "deviceclasses" | "resourceslices" | "devicetaintrules") => {
                Self { generation: true, returns_deleted: true, ..plain }
            }
            ("resource.k8s.io", _) => Self { returns_deleted: true, ..plain },
            _ => plain,
        }
    }
}

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub struct TableStrategy(pub Traits);

impl Strategy for TableStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        self.0.names.problems(name, prefix)
    }

    fn prepare_for_create(&self, _ctx: &RequestContext, _object: &mut Tree) {}

    fn allows_create_on_update(&self) -> bool {
        self.0.create_on_update
    }

    fn allows_unconditional_update(&self) -> bool {
        self.0.unconditional_update
    }

    fn counts_generation(&self) -> bool {
        self.0.generation
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        self.0.garbage
    }

    fn returns_deleted_object(&self) -> bool {
        self.0.returns_deleted
    }
}
