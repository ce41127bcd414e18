//! Lines of the boundary between tenants: the door of the API, scopes of addresses, rights and what they may grant, nodes, audit.

use super::{Mutation, Suite};

const RBAC: &[&str] = &["--lib", "authz::rbac"];
const NODES: &[&str] = &["--lib", "authz::node"];
const REVIEWS: &[&str] = &["--lib", "webhook::"];

pub(super) const SUITES: &[Suite] = &[
    Suite {
        package: "apiserver-auth",
        folder: "apiserver/auth/src/authz",
        mutations: &[
            Mutation {
                name: "a role that aggregates others is written without all rights",
                file: "rbac/escalation.rs",
                from: "if aggregates && covered(held, &full_authority()).is_err() {",
                to: "if aggregates && covered(held, &[]).is_err() {",
                proof: RBAC,
            },
            Mutation {
                name: "a changed role counts as one that garbage collection changes",
                file: "rbac/escalation.rs",
                from: ".is_some_and(|old| compared(old) == compared(self.new))",
                to: ".is_some_and(|old| compared(old) == compared(old))",
                proof: RBAC,
            },
            Mutation {
                name: "rules are compared however long it takes",
                file: "rbac/coverage.rs",
                from: "const MAX_STEPS: usize = 4_000_000;",
                to: "const MAX_STEPS: usize = usize::MAX;",
                proof: RBAC,
            },
            Mutation {
                name: "a rule for some names is one for all",
                file: "rbac/rules.rs",
                from: "self.resource_names.iter().any(|own| own == target.name)",
                to: "self.resource_names.iter().any(|_| true)",
                proof: RBAC,
            },
            Mutation {
                name: "a node reads what no pod of its own needs",
                file: "node/mod.rs",
                from: "if self.related(node, kind, target).await =>",
                to: "if self.related(node, kind, target).await || true =>",
                proof: NODES,
            },
        ],
    },
    Suite {
        package: "apiserver-auth",
        folder: "apiserver/auth/src",
        mutations: &[
            Mutation {
                name: "a review in the line outlives its requests",
                file: "authn/token_webhook/under_way.rs",
                from: "if waiters.count.load(Ordering::Acquire) == 0 {",
                to: "if waiters.count.load(Ordering::Acquire) == usize::MAX {",
                proof: REVIEWS,
            },
            Mutation {
                name: "a review ends though a request has come for it",
                file: "authn/token_webhook/under_way.rs",
                from: "if waiters.count.load(Ordering::Acquire) == 0 {",
                to: "if waiters.count.load(Ordering::Acquire) < usize::MAX {",
                proof: REVIEWS,
            },
            Mutation {
                name: "a review waits for its turn that nothing waits for",
                file: "review_webhook/mod.rs",
                from: "let entering = unless(abandoned.as_mut(), entering).await?;",
                to: "let entering = entering.await;",
                proof: REVIEWS,
            },
            Mutation {
                name: "a review is called again that nothing waits for",
                file: "review_webhook/mod.rs",
                from: "unless(abandoned.as_mut(), pausing).await?;",
                to: "pausing.await;",
                proof: REVIEWS,
            },
        ],
    },
    Suite {
        package: "apiserver-admission",
        folder: "apiserver/admission/src/plugins/node_restriction",
        mutations: &[Mutation {
            name: "a node names an owner for itself",
            file: "nodes.rs",
            from: "if !same(object, old, &[\"metadata\", \"ownerReferences\"]) {",
            to: "if false {",
            proof: &["--lib", "node_restriction"],
        }],
    },
    Suite {
        package: "apiserver-server",
        folder: "apiserver",
        mutations: &[
            Mutation {
                name: "a namespace has nodes below it",
                file: "endpoints/src/handlers/mod.rs",
                from: "Scope::Namespace(_) => Err(RegistryError::NoSuchResource.into()),",
                to: "Scope::Namespace(_) => Ok(()),",
                proof: &["--test", "tenants", "namespace_address_does_not_nest"],
            },
            Mutation {
                name: "a selector leaves the namespace of the address",
                file: "registry/src/engine/store/read.rs",
                from: "            own => own,\n",
                to: "            own => selected.unwrap_or(own),\n",
                proof: &["--test", "tenants", "field_selector_stays"],
            },
            Mutation {
                name: "a right to read opens a shell",
                file: "endpoints/src/handlers/connect.rs",
                from: "if opens_a_process(&call.info) && ",
                to: "if !opens_a_process(&call.info) && ",
                proof: &["--test", "tenants", "exec_needs_create"],
            },
            Mutation {
                name: "a definition adds kinds to the server's own groups",
                file: "registry/src/engine/registry.rs",
                from: "rows.filter(|row| !old.is_built_in_group(&row.gvk.group))",
                to: "rows.filter(|row| !old.is_built_in_group(&row.gvk.kind))",
                proof: &["--test", "custom_kinds", "definition_replaces_no_built_in"],
            },
            Mutation {
                name: "impersonation waits for a webhook beyond the deadline",
                file: "server/src/filters/impersonation.rs",
                from: "deadline::before(exchange.context.deadline, runtime, found)",
                to: "deadline::before(None, runtime, found)",
                proof: &["--test", "authorization_config", "impersonation_waits"],
            },
            Mutation {
                name: "a write whose client left has no last event",
                file: "server/src/filters/detach.rs",
                from: "completion.ended(Outcome::Answered(response.status().as_u16()));",
                to: "let _ = (completion, Outcome::Answered(response.status().as_u16()));",
                proof: &["--test", "audit", "audit_records_a_write_whose_client_left"],
            },
        ],
    },
];
