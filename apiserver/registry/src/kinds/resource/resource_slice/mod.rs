//! ResourceSlice: devices of a pool, as its driver publishes them.

mod columns;
mod device;
mod request_policy;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::resource::defaults::times_of_slice;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceslices")
    .traits(Traits::COUNTED.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_create(times_of_slice)
    .prepare_for_update(|ctx, _, object, _| times_of_slice(ctx, object))
    .warnings(warnings)
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.nodeName", "spec.driver", "spec.pool.name"]));

/// Names of drivers are compared as they are written.
fn warnings(slice: Ref<'_>, _old: Option<Ref<'_>>) -> Vec<String> {
    let driver = slice.str_at(&["spec", "driver"]);
    let is_lower = driver.to_lowercase() == driver;
    let warning =
        || format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters");
    (!is_lower).then(warning).into_iter().collect()
}
