//! Fields of storage classes that have no effect yet.

use crate::shared::not_enforced::{Field, field};
use machinery_schema::Ref;

/// The provisioner that is a controller of this server.
const LOCAL_PATH: &str = "knarr/local-path";
/// Names of upstream's own provisioners begin so; others are programs that users install.
const UPSTREAMS_OWN: &str = "kubernetes.io/";
/// The one of them that stands for none.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A provisioner that is not here, and growth of volumes that do not grow.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let of = |name: &str| object.get(name);
    let is_absent = |own: &Ref<'_>| {
        let name = own.as_str().unwrap_or_default();
        name.starts_with(UPSTREAMS_OWN) && name != NO_PROVISIONER
    };
    let provisioner = field(
        "provisioner",
        of("provisioner").filter(is_absent),
        "this server has no provisioner of that name",
    );
    let is_local_path = of("provisioner").is_some_and(|own| own.as_str() == Some(LOCAL_PATH));
    let is_true = |own: &Ref<'_>| is_local_path && own.as_bool() == Some(true);
    let growth = field(
        "allowVolumeExpansion",
        of("allowVolumeExpansion").filter(is_true),
        "volumes do not grow",
    );
    provisioner.into_iter().chain(growth).collect()
}
