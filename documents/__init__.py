"""The site of the documents: pages generated from the code, and the tree that the site is built from."""
