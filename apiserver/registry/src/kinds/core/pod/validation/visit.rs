//! A walk over the containers of a pod.

use crate::shared::validation::Path;
use machinery_schema::Ref;

/// Shows every container with its path, in the order in which upstream visits them.
pub(super) fn visit<'a>(path: &Path<'_>, spec: Ref<'a>, mut look: impl FnMut(&Path<'_>, Ref<'a>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let all = path.child(list);
        for (index, container) in spec.list(list).enumerate() {
            look(&all.index(index), container);
        }
    }
}
