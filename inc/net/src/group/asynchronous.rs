//! Operations as futures, for programs with many things to wait for. Any executor will do: the host's own thread, or
//! whichever thread waits for a result of the same host, wakes who awaits one.
//!
//! An operation begins with the call, not when its future is first polled, since all ranks begin the same ones in the same
//! order. A future that is dropped takes nothing back: this rank still has its part in the operation, whose result goes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inc::element::Operator;
use inc::member::{OperationError, SubmitError};
use inc::wire::{Collective, Rank};
use zerocopy::IntoBytes;

use super::{
    CollectiveError, CollectiveRequest, Communicator, CommunicatorRank, VectorElement, reduction,
    values,
};

impl Future for CollectiveRequest {
    type Output = Result<Arc<Vec<u8>>, CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(result) = this.result.take() {
            return Poll::Ready(result);
        }
        if this.is_taken {
            // It gave its result before.
            return Poll::Ready(Err(this.of.ended_as_said(OperationError::Unknown)));
        }
        this.of.host.poll_result(this.of.member, this.operation, context).map(|result| {
            this.is_taken = true;
            result.map_err(|error| this.of.ended_as_said(error))
        })
    }
}

impl Communicator {
    /// Every rank gets the reduction of what all ranks give. The operation is under way when this returns.
    pub fn allreduce_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = reduction(operator, T::TYPE).and_then(|reduction| {
            self.begin_async(Collective::Allreduce(reduction), data.as_bytes())
        });
        async move { Ok(values(&begun?.await?)) }
    }

    /// The root gets the reduction of what all ranks give, the others nothing. The operation is under way when this returns.
    pub fn reduce_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
        root: Rank,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = reduction(operator, T::TYPE).and_then(|reduction| {
            self.begin_async(Collective::Reduce(reduction, root), data.as_bytes())
        });
        async move { Ok(values(&begun?.await?)) }
    }

    /// Every rank gets what the root gives. The operation is under way when this returns.
    pub fn broadcast_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        root: Rank,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = self.begin_async(Collective::Broadcast(T::TYPE, root), data.as_bytes());
        // The root gets no result: it has the data.
        let own = (self.rank() == root).then(|| data.as_bytes().to_vec());
        async move {
            let result = begun?.await?;
            Ok(own.map_or_else(|| values(&result), |own: Vec<u8>| values(&own)))
        }
    }

    /// Is over when all ranks have called it, which this one has when this returns.
    pub fn barrier_async(
        &self,
    ) -> impl Future<Output = Result<(), CollectiveError>> + Send + use<> {
        let begun = self.begin_async(Collective::Barrier, &[]);
        async move { begun?.await.map(drop) }
    }

    /// Every rank gets what each rank gives, one after the other. The operations are under way when this returns.
    pub fn allgather_async<T: VectorElement + Send>(
        &self,
        data: &[T],
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let owners = (0..self.world_size()).map(Rank);
        let begun: Vec<_> = owners.map(|owner| self.broadcast_async(data, owner)).collect();
        async move {
            let mut all = Vec::new();
            for block in begun {
                all.extend(block.await?);
            }
            Ok(all)
        }
    }

    /// Each rank gets its block of the reduction. The operations are under way when this returns.
    pub fn reduce_scatter_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = self.blocks(data).and_then(|blocks| {
            let reduction = reduction(operator, T::TYPE)?;
            let of = |(owner, block): (Rank, &[T])| {
                self.begin_async(Collective::Reduce(reduction, owner), block.as_bytes())
            };
            blocks.map(of).collect::<Result<Vec<_>, _>>()
        });
        async move {
            let mut mine = Vec::new();
            for request in begun? {
                // Of all blocks this rank gets its own one alone.
                mine.extend(values::<T>(&request.await?));
            }
            Ok(mine)
        }
    }

    /// [`Communicator::begin`], but where the communicator has just been aborted it is the request that waits for the controller's words.
    fn begin_async(
        &self,
        collective: Collective,
        data: &[u8],
    ) -> Result<CollectiveRequest, CollectiveError> {
        self.check_root(collective)?;
        let operation = self.0.host.submit_for_task(self.0.member, collective, data);
        let operation = operation.map_err(|error| match error {
            SubmitError::Over(error) => self.0.ended_as_said(error),
            error => error.into(),
        })?;
        Ok(self.request(operation))
    }
}

impl CommunicatorRank {
    /// What an operation ended with, and what the controller has said of it so far.
    fn ended_as_said(&self, error: OperationError) -> CollectiveError {
        CollectiveError::Operation { error, why: self.host.why(self.member).unwrap_or_default() }
    }
}
