//! The streams of a connection, by their numbers.

use super::stream::Stream;

/// Streams in the order of their numbers. Boxed one by one: a connection keeps exactly the memory of those it has.
#[derive(Default)]
pub(super) struct Streams {
    #[expect(
        clippy::vec_box,
        reason = "a row that grows to twice its length must not take twice the memory of the streams"
    )]
    sorted: Vec<Box<Stream>>,
}

impl Streams {
    fn place(&self, id: u16) -> Result<usize, usize> {
        // Most connections open the streams 0, 2, 4: then the place is known.
        let guess = usize::from(id / 2);
        if self.sorted.get(guess).is_some_and(|stream| stream.id == id) {
            return Ok(guess);
        }
        self.sorted.binary_search_by_key(&id, |stream| stream.id)
    }

    pub(super) fn get(&self, id: u16) -> Option<&Stream> {
        self.place(id).ok().map(|at| &*self.sorted[at])
    }

    pub(super) fn get_mut(&mut self, id: u16) -> Option<&mut Stream> {
        self.place(id).ok().map(|at| &mut *self.sorted[at])
    }

    /// Adds a stream, in place of one with the same number.
    pub(super) fn insert(&mut self, stream: Stream) {
        match self.place(stream.id) {
            Ok(at) => *self.sorted[at] = stream,
            Err(at) => self.sorted.insert(at, Box::new(stream)),
        }
    }

    /// Removes the streams for which `keeps` is false.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&mut Stream) -> bool) {
        self.sorted.retain_mut(|stream| keeps(stream));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.sorted.iter().map(|stream| &**stream)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.sorted.iter_mut().map(|stream| &mut **stream)
    }
}
