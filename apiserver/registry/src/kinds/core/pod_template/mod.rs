//! PodTemplate: a template that nothing acts on by itself.

mod columns;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("", "podtemplates")
    .traits(Traits::COUNTED.returned())
    .pod_template(crate::kinds::core::pod::template::at(&["template", "spec"]))
    .columns(columns::cells);
