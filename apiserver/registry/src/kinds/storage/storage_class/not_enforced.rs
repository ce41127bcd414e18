//! Fields of storage classes that have no effect yet.

use crate::shared::not_enforced::{Field, field};
use machinery_schema::Ref;

/// Provisioners that the controllers of this server are, and the one that stands for none.
const PROVISIONERS: [&str; 2] = ["knarr/local-path", "kubernetes.io/no-provisioner"];

/// A provisioner that is not here, and growth of volumes.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let of = |name: &str| object.get(name);
    let is_elsewhere = |own: &Ref<'_>| {
        let name = own.as_str().unwrap_or_default();
        !name.is_empty() && !PROVISIONERS.contains(&name)
    };
    let provisioner = field(
        "provisioner",
        of("provisioner").filter(is_elsewhere),
        "this server has no provisioner of that name, and nodes mount no volumes of CSI drivers",
    );
    let is_true = |own: &Ref<'_>| own.as_bool() == Some(true);
    let growth = field(
        "allowVolumeExpansion",
        of("allowVolumeExpansion").filter(is_true),
        "volumes do not grow",
    );
    provisioner.into_iter().chain(growth).collect()
}
