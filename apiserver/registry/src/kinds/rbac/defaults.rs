//! Defaults of bindings.

use machinery_schema::Tree;

/// Lines of both kinds of bindings.
pub(super) const LINES: &[&str] = &["roleRef.apiGroup=\"rbac.authorization.k8s.io\""];

/// The group of users and groups.
pub(super) fn subjects(object: &mut Tree) {
    object.root_mut().each("subjects", |mut subject| {
        if matches!(subject.as_ref().str("kind"), "User" | "Group") {
            subject.default("apiGroup", "rbac.authorization.k8s.io");
        }
    });
}
