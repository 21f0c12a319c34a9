// Package packaging holds the tests of what is shipped around the program: the image, the compose file and the
// workflow of the repository's CI. They read the files as they are, without Docker.
package packaging
