//! Memory that is only borrowed: no safe call makes a region of it, because a peer may
//! write there after the loan.
use urma_core::{Context, Segment, SegmentAccess, SegmentCfg, Status};
use urma_mem::Region;

fn lend(context: &Context, buffer: &mut [u8]) -> Result<Segment, Status> {
    let region = Region::from_user(buffer.as_mut_ptr(), buffer.len()).map_err(|_| Status::Fail)?;
    context.register(&region, &SegmentCfg::new(SegmentAccess::READ), None)
}

fn main() {}
