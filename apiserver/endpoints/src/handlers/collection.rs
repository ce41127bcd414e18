//! deletecollection.

use super::write::delete_options;
use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::{params, respond};
use http::Response;

pub(crate) async fn delete_collection(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let select = params::list(&call.query, "")?;
    super::read::check_fields(call.row(), &select.predicate.fields)?;
    let options = delete_options(&mut call).await?;
    if options.unreadable {
        return Err(params::unreadable_collection().into());
    }
    for warning in call.row().strategy.delete_warnings(&options) {
        call.ctx.warnings.add(warning);
    }
    let page = call
        .store
        .delete_collection(&call.ctx, &call.info.scope, &options, &select, this.door())
        .await?;
    let copied = !respond::is_shared(call.row(), showing.form, &page);
    let room = this.0.list_memory.admit_in_turn(&call.ctx, &page, copied).await?;
    let referred = if copied { 0 } else { page.record_bytes() };
    let unread = this.0.unread_memory.admit_in_turn(&call.ctx, referred).await?;
    Ok(unread.with(room.with(respond::list(&call.store, showing, page)?)))
}
