//! Which validation a kind of the table has; a kind that is not named is the table's alone.

use crate::{
    apps, batch, certificates, coordination, core, discovery, extensions, networking, rbac, scheduling,
    storage,
};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of an object, seen beside the one that it replaces.
type Compare = fn(Ref<'_>, Ref<'_>) -> Vec<FieldError>;

/// What is wrong with a new object, with a changed one, and with a changed status; functions of the kind's folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) new: fn(Ref<'_>) -> Vec<FieldError>,
    pub(crate) changed: Compare,
    pub(crate) status: Compare,
}

impl Rules {
    /// The rules of a built-in resource.
    pub(crate) fn of(group: &str, plural: &str) -> Self {
        let rules = |new, changed| Self {
            new,
            changed,
            status: |_, _| Vec::new(),
        };
        match (group, plural) {
            ("", "persistentvolumeclaims") => rules(core::claim::validation::validate, |_, _| Vec::new()),
            ("", "persistentvolumes") => rules(
                core::volume::validation::validate,
                core::volume::validation::validate_update,
            ),
            ("", "replicationcontrollers") => {
                rules(core::replication_controller::validation::validate, |new, _| {
                    core::replication_controller::validation::validate(new)
                })
                .with_status(apps::status::validate_controller)
            }
            ("apps", "daemonsets") => rules(
                apps::daemon_set::validation::validate,
                apps::daemon_set::validation::validate_update,
            )
            .with_status(apps::status::validate_daemon_set),
            ("apps", "statefulsets") => rules(
                apps::stateful_set::validation::validate,
                apps::stateful_set::validation::validate_update,
            )
            .with_status(apps::status::validate_stateful_set),
            ("batch", "cronjobs") => rules(
                batch::cron_job::validation::validate,
                batch::cron_job::validation::validate_update,
            ),
            ("autoscaling", "horizontalpodautoscalers") => {
                rules(extensions::autoscaling::validation::validate, |new, _| {
                    extensions::autoscaling::validation::validate(new)
                })
            }
            ("apiregistration.k8s.io", "apiservices") => {
                rules(extensions::api_service::validate, |new, _| {
                    extensions::api_service::validate(new)
                })
            }
            ("certificates.k8s.io", "certificatesigningrequests") => rules(
                extensions::signing_request::validate,
                extensions::signing_decision::validate,
            )
            .with_status(extensions::signing_decision::validate_status),
            ("flowcontrol.apiserver.k8s.io", "flowschemas") => {
                rules(extensions::plain::validate_flow_schema, |new, _| {
                    extensions::plain::validate_flow_schema(new)
                })
            }
            ("node.k8s.io", "runtimeclasses") => rules(
                extensions::plain::validate_runtime_class,
                extensions::plain::validate_runtime_class_update,
            ),
            ("networking.k8s.io", "ingresses") => {
                rules(networking::ingress::validation::validate, |new, _| {
                    networking::ingress::validation::validate_update(new)
                })
            }
            ("storage.k8s.io", "storageclasses") => rules(
                storage::validation::validate_class,
                storage::validation::validate_class_update,
            ),
            ("storage.k8s.io", "volumeattachments") => rules(
                storage::validation::validate_attachment,
                storage::validation::validate_attachment_update,
            ),
            ("", "endpoints") => rules(core::endpoints::validation::validate, |new, _| {
                core::endpoints::validation::validate(new)
            }),
            ("apps", "deployments") => rules(
                apps::deployment::validation::validate,
                apps::deployment::validation::validate_update,
            )
            .with_status(apps::status::validate_deployment),
            ("apps", "replicasets") => rules(
                apps::replica_set::validation::validate,
                apps::replica_set::validation::validate_update,
            )
            .with_status(apps::status::validate_replica_set),
            ("batch", "jobs") => rules(batch::job::validation::validate, batch::job::update::validate)
                .with_status(batch::job::status::validate),
            ("coordination.k8s.io", "leases") => {
                rules(coordination::lease::validation::validate, |new, _| {
                    coordination::lease::validation::validate(new)
                })
            }
            ("certificates.k8s.io", "clustertrustbundles") => rules(
                certificates::cluster_trust_bundle::validation::validate,
                certificates::cluster_trust_bundle::validation::validate_update,
            ),
            ("certificates.k8s.io", "podcertificaterequests") => rules(
                certificates::pod_certificate_request::validation::validate,
                certificates::pod_certificate_request::validation::validate_update,
            ),
            ("storagemigration.k8s.io", _) => {
                rules(|_| Vec::new(), extensions::plain::validate_migration_update)
            }
            ("networking.k8s.io", "ipaddresses") => rules(
                networking::ip_address::validation::validate,
                networking::ip_address::validation::validate_update,
            ),
            ("networking.k8s.io", "servicecidrs") => rules(
                networking::service_cidr::validation::validate,
                networking::service_cidr::validation::validate_update,
            ),
            ("scheduling.k8s.io", "priorityclasses") => rules(
                scheduling::priority_class::validation::validate,
                scheduling::priority_class::validation::validate_update,
            ),
            ("discovery.k8s.io", "endpointslices") => rules(
                discovery::endpoint_slice::validation::validate,
                discovery::endpoint_slice::validation::validate_update,
            ),
            ("rbac.authorization.k8s.io", "roles") => rules(rbac::validation::validate_role, |new, _| {
                rbac::validation::validate_role(new)
            }),
            ("rbac.authorization.k8s.io", "clusterroles") => {
                rules(rbac::validation::validate_cluster_role, |new, _| {
                    rbac::validation::validate_cluster_role(new)
                })
            }
            ("rbac.authorization.k8s.io", "rolebindings") => rules(
                |new| rbac::validation::validate_binding(new, true),
                |new, old| rbac::validation::validate_binding_update(new, old, true),
            ),
            ("rbac.authorization.k8s.io", "clusterrolebindings") => rules(
                |new| rbac::validation::validate_binding(new, false),
                |new, old| rbac::validation::validate_binding_update(new, old, false),
            ),
            _ => rules(|_| Vec::new(), |_, _| Vec::new()),
        }
    }

    fn with_status(self, status: Compare) -> Self {
        Self { status, ..self }
    }
}
