//! Event of events.k8s.io: stored as the core group has it, with stricter rules.

mod columns;

use crate::engine::kind::{Kind, StoredAs};
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::core::event::{EVENT_TTL, EventsConversion, validation};
use std::sync::Arc;

pub(crate) static KIND: Kind = Kind::of("events.k8s.io", "events")
    .traits(
        Traits::PLAIN
            .put_creates()
            .garbage_unsupported()
            .expiring(EVENT_TTL),
    )
    .rules(ValidationRules::create(validation::validate_events).update(validation::validate_events_update))
    .columns(columns::cells)
    .selectable(crate::kinds::core::event::selectable)
    .stored_as(StoredAs {
        version: "v1",
        stored: ("", "v1"),
        conversion: || Arc::new(EventsConversion),
    });
