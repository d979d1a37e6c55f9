//! A queue that most of its owners never use.

use std::collections::VecDeque;
use std::collections::vec_deque::IterMut;
use std::ops::Deref;

/// A queue that takes one word until something is put into it: a connection has many streams, and most of them rest.
/// What it holds is read as that of any other queue.
#[derive(Debug)]
pub(super) struct LazyQueue<T>(
    #[expect(clippy::box_collection, reason = "a queue takes four words, a box one")]
    Option<Box<VecDeque<T>>>,
);

impl<T: 'static> LazyQueue<T> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn push_back(&mut self, item: T) {
        self.made().push_back(item);
    }

    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        self.made().extend(items);
    }

    fn made(&mut self) -> &mut VecDeque<T> {
        self.0.get_or_insert_default()
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.as_mut()?.get_mut(index)
    }

    pub(super) fn iter_mut(&mut self) -> IterMut<'_, T> {
        self.0
            .as_deref_mut()
            .map_or_else(IterMut::default, VecDeque::iter_mut)
    }

    /// Takes everything, and the memory with it.
    pub(super) fn take(&mut self) -> VecDeque<T> {
        self.0.take().map_or_else(VecDeque::new, |queue| *queue)
    }

    /// Gives the memory of an empty queue back.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}

impl<T: 'static> Deref for LazyQueue<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        match &self.0 {
            Some(queue) => queue,
            None => const { &VecDeque::new() },
        }
    }
}
