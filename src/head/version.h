/* version.h - which Muster this is; the build says it, see meson.build */
#ifndef MS_HEAD_VERSION_H
#define MS_HEAD_VERSION_H

#ifndef MS_VERSION
#define MS_VERSION "0.1.0"
#endif

#endif
